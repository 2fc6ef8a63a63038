-- begin_batch(batch, owner, window_ms, (field, value)…): a batch is taken in; one that is there already stays as it is
local batch, owner, window_ms, now = ARGV[1], ARGV[2], tonumber(ARGV[3]), now_ms()
local key = 'cl:batch:{' .. batch .. '}'
if redis.call('EXISTS', key) == 1 then return 0 end
redis.call('HSET', key, 'owner', owner, 'status', 'validating', 'created_ms', now, 'expires_ms', now + window_ms,
  unpack(ARGV, 4))
redis.call('ZADD', 'cl:batches:' .. owner, 0, batch)
redis.call('ZADD', 'cl:batching', now, batch)
return 1
