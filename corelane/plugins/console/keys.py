"""The Redis keys of the console: its history and its sessions. ``corelane.store.keys`` says how to read them."""

from corelane.store.keys import RedisKey

HISTORY = RedisKey("cl:history", "stream", stays=True)  # time → a point: figures of ten seconds; the last six hours
SAMPLED = RedisKey("cl:sampled", "stream")  # the sums of METRICS at the last seven points; 120 s
SAMPLER = RedisKey("cl:sampler", "string")  # the process that takes the points; 25 s
# Digest of an API key → digests of its sessions by when they began, in µs.
sessions = RedisKey("cl:sessions:%s", "zset", secret=True)
session = RedisKey("cl:session:%s", "string", secret=True)  # digest of a console session → digest of its API key; 12 h
