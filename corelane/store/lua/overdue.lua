-- overdue() → how long each of these has waited though it could go on, in ms: webhooks, sweeps, feeding, batches; -1 if
-- there is nothing to do. What waits for its time, a pause or a host that fails is not overdue; a sweep is from the
-- first one on.
local now = now_ms()
local due = redis.call('ZRANGE', 'cl:due', 0, 0, 'WITHSCORES')[2]
local function since(name, work)
  local oldest = redis.call('ZRANGE', work, 0, 0, 'WITHSCORES')[2]
  if not oldest then return -1 end
  return now - math.max(tonumber(oldest), tonumber(redis.call('HGET', 'cl:rounds', name) or 0))
end
local swept = redis.call('HGET', 'cl:rounds', 'sweeps')
return {
  due and tonumber(due) <= now and now - tonumber(due) or -1,
  swept and now - tonumber(swept) or -1,
  since('feeding', 'cl:feeds'),
  since('batches', 'cl:batching'),
}
