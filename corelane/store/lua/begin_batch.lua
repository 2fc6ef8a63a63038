-- begin_batch(batch, owner, window_ms, once, fingerprint, once_ttl_s, (field, value)…) → nil, or the holder of `once`
-- A batch is taken in; one that is there already stays as it is. `once`, if not empty, is a key that one batch may hold, for
-- so many seconds: see submit.
local batch, owner, window_ms, once, now = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], now_ms()
local key = 'cl:batch:{' .. batch .. '}'
if redis.call('EXISTS', key) == 1 then return false end
if once ~= '' and not redis.call('SET', once, batch .. ' ' .. ARGV[5], 'NX', 'EX', ARGV[6]) then
  return redis.call('GET', once)
end
redis.call('HSET', key, 'owner', owner, 'status', 'validating', 'created_ms', now, 'expires_ms', now + window_ms,
  unpack(ARGV, 7))
redis.call('ZADD', 'cl:batches:' .. owner, 0, batch)
redis.call('ZADD', 'cl:batching', now, batch)
return false
