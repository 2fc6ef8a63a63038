"""The Redis keys of usage. ``corelane.store.keys`` says how to read them."""

from corelane.store.keys import RedisKey

# Each text has items, windows, tokens and core microseconds, the last by price.
usage = RedisKey("cl:usage:%s", "hash", stays=True)  # day since 1970 → OWNER|VERSION|PRICE → sums; usage_days
USAGE_DAYS = RedisKey("cl:usage_days", "zset", stays=True)  # day with usage → day
WORKED = RedisKey("cl:worked", "hash")  # core → its process, time of its last heartbeat, core microseconds until then
