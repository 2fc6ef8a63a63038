-- beat(core, lease_ms, speed, out, n, n × (field, value), m, version…, lease…) → the revision of the plan, versions unknown
-- "I live, I am so fast, I am out of service (1) or not, I hold these versions, I still work under these leases." A lease that was taken back is not revived.
-- A version is unknown where Redis came back empty, as after a failover: the core announces it again.
local core, lease_ms, speed, n = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[5])
local now, at = now_ms(), 6 + 2 * n
redis.call('HSET', 'cl:core:' .. core, 'beat_ms', now, unpack(ARGV, 6, 5 + 2 * n))
redis.call('PEXPIRE', 'cl:core:' .. core, lease_ms)
redis.call('ZADD', 'cl:cores', now, core)
redis.call(ARGV[4] == '1' and 'SADD' or 'SREM', 'cl:out_of_service', core)
if speed ~= '' then redis.call('HSET', 'cl:speeds', core, speed) end
local m = tonumber(ARGV[at])
local reply = { redis.call('GET', 'cl:plan') or '' }
for i = at + 1, at + m do
  redis.call('ZADD', 'cl:holders:' .. ARGV[i], now + lease_ms, core)
  if redis.call('HEXISTS', 'cl:models', ARGV[i]) == 0 then reply[#reply + 1] = ARGV[i] end
end
for i = at + m + 1, #ARGV do redis.call('ZADD', 'cl:leases', 'XX', now + lease_ms, ARGV[i]) end
return reply
