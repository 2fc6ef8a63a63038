-- report(id, outcome, well, pause_ms, host_pause_ms, entry, ttl, dead_ttl, window_ms, most, failures, circuit_ms) → its state
-- One attempt is over: `delivered`, `gone` or `failed`. A failed one is due again after `pause_ms`, or dead if that is
-- negative or its `window_ms` is over. `well` is 1 where the host answers as it should, whatever it says; after so many
-- `failures` in a row it is left alone for `circuit_ms`, longer each time, and then tried with one delivery. What is
-- delivered already stays so: a late report is only noted.
local id, outcome, well, pause_ms, host_pause_ms, entry = ARGV[1], ARGV[2], ARGV[3] == '1', tonumber(ARGV[4]), tonumber(ARGV[5]), ARGV[6]
local ttl, dead_ttl, window_ms = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
local most, failures, circuit_ms = tonumber(ARGV[10]), tonumber(ARGV[11]), tonumber(ARGV[12])
local LOG_ENTRIES, DOUBLINGS, REAP_AT_ONCE = 50, 5, 200
local now, key, log = now_ms(), delivery_key(id), 'cl:tries:' .. id
local host, state, since = unpack(redis.call('HMGET', key, 'host', 'state', 'since_ms'))
if not host then return '' end
local line = 'cl:due:' .. host
redis.call('ZREM', 'cl:flight:' .. host, id)
redis.call('HINCRBY', key, 'attempts', 1)
redis.call('HINCRBY', key, 'tries', 1)
redis.call('RPUSH', log, entry)
redis.call('LTRIM', log, -LOG_ENTRIES, -1)
redis.call('EXPIRE', log, redis.call('TTL', key))

if well then
  redis.call('HDEL', 'cl:failures', host)
  redis.call('ZREM', 'cl:circuits', host)
else
  local count = redis.call('HINCRBY', 'cl:failures', host, 1)
  if count >= failures then
    redis.call('ZADD', 'cl:circuits', now + circuit_ms * 2 ^ math.min(count - failures, DOUBLINGS), host)
  end
  if host_pause_ms > 0 then redis.call('ZADD', 'cl:circuits', 'GT', now + host_pause_ms, host) end
end

if state == 'pending' then
  if outcome ~= 'failed' then
    state = outcome
    end_delivery(id, host, outcome, now, ttl)
  elseif pause_ms < 0 or now - since > window_ms then
    state = 'dead'
    end_delivery(id, host, 'dead', now, dead_ttl)
  else
    redis.call('HINCRBY', 'cl:posted', 'failed', 1)
    redis.call('ZADD', line, now + pause_ms, id)
  end
end
-- What waited behind a dead host for as long as all attempts would have taken is given up as well.
if not well then
  for _, other in ipairs(redis.call('ZRANGE', line, 0, REAP_AT_ONCE - 1)) do
    local began = redis.call('HGET', delivery_key(other), 'since_ms')
    if not began then
      redis.call('ZREM', line, other)
    elseif now - began > window_ms and not redis.call('ZSCORE', 'cl:flight:' .. host, other) then
      end_delivery(other, host, 'dead', now, dead_ttl)
    end
  end
end
settle_host(host, host_room(host, now, most))
wake_couriers()
return state
