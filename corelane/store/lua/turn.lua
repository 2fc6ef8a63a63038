-- turn(core, host, places, lease_ms) → 1 if the core may load a model while it serves, or may go on with it; else 0
-- Of a host's cores so many may at a time; the turn of one that died ends with its lease.
local core, key, places, lease_ms = ARGV[1], 'cl:loads:' .. ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local now = now_ms()
redis.call('ZREMRANGEBYSCORE', key, '-inf', now)
if not redis.call('ZSCORE', key, core) and redis.call('ZCARD', key) >= places then return 0 end
redis.call('ZADD', key, now + lease_ms, core)
redis.call('PEXPIRE', key, lease_ms)
return 1
