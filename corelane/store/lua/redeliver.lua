-- redeliver(id) → 1 if it is due now, 0 if there is no such delivery
-- As if it were new, but for its id, its bytes and its log; its host gets another chance at once.
local id, now = ARGV[1], now_ms()
local key = delivery_key(id)
local host, subject = unpack(redis.call('HMGET', key, 'host', 'subject'))
if not host then return 0 end
redis.call('HSET', key, 'state', 'pending', 'tries', 0, 'since_ms', now)
redis.call('HDEL', key, 'ended_ms')
for _, kept in ipairs({ key, 'cl:tries:' .. id, 'cl:deliveries:' .. subject }) do
  redis.call('EXPIRE', kept, math.max(redis.call('TTL', kept), KEEP_DELIVERY_S))
end
redis.call('ZREM', 'cl:dead', id)
if not redis.call('ZSCORE', 'cl:flight:' .. host, id) then
  local first = redis.call('ZRANGE', 'cl:due:' .. host, 0, 0, 'WITHSCORES')[2]
  redis.call('ZADD', 'cl:due:' .. host, math.min(now, tonumber(first or now) - 1), id)
end
redis.call('ZREM', 'cl:circuits', host)
settle_host(host)
wake_couriers()
return 1
