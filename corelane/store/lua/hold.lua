-- hold(lease_ms, delivery…)
-- Their sender lives and is still at them: none is due again before `lease_ms` from now. One whose lease has ended, by a
-- report or by being handed to another, is left alone. When its host is worth a look may be told too early by this.
local lease_ms, now = tonumber(ARGV[1]), now_ms()
for i = 2, #ARGV do
  local host = redis.call('HGET', delivery_key(ARGV[i]), 'host')
  if host and redis.call('ZSCORE', 'cl:flight:' .. host, ARGV[i]) then
    redis.call('ZADD', 'cl:flight:' .. host, now + lease_ms, ARGV[i])
    redis.call('ZADD', 'cl:due:' .. host, 'XX', now + lease_ms, ARGV[i])
  end
end
