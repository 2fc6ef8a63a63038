"""The Redis keys of usage. ``corelane.store.keys`` says how to read them."""

from corelane.store.keys import RedisKey

# Each text has items, tokens and core microseconds.
usage = RedisKey("cl:usage:%s", "hash", stays=True)  # day since 1970 → OWNER|VERSION → sums; 400 days
USAGE_DAYS = RedisKey("cl:usage_days", "zset", stays=True)  # day with usage → day
