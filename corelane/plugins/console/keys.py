"""The Redis keys of the console: its history and its sessions. ``corelane.store.keys`` says how to read them."""

from corelane.store.keys import RedisKey

history = RedisKey("cl:history:%s", "stream", stays=True)  # fine, coarse → points; the last six hours, or the last week
SAMPLED = RedisKey("cl:sampled", "string")  # the sums of METRICS at the last point; a day
SAMPLER = RedisKey("cl:sampler", "string")  # the process that takes the points; 25 s
# Digest of an API key → digests of its sessions by when they began, in µs.
sessions = RedisKey("cl:sessions:%s", "zset", secret=True)
session = RedisKey("cl:session:%s", "string", secret=True)  # digest of a console session → digest of its API key; 12 h
