-- Webhooks: an event's delivery, and when its host is worth a look. In front of every script, as the end of a job is here.
-- A host's deliveries stand in a line of their own, cl:due:HOST, by the time of their next attempt; cl:due holds each host
-- that has any by the earliest time at which one may be handed out, so a host that fails or dawdles is in nobody's way.

-- Longer than all attempts take, whatever results_ttl_s says: a delivery under way is not forgotten. In seconds.
local KEEP_DELIVERY_S = 259200

local function delivery_key(id) return 'cl:delivery:' .. id end

-- The same event of the same subject has the same id: it is announced once, however often this is called.
local function delivery_id(subject, event)
  return 'evt_' .. string.gsub(subject, '^%a+_', '') .. '_' .. string.match(event, '([^.]*)$')
end

-- Have a sender that waits look again.
local function wake_couriers()
  redis.call('LPUSH', 'cl:wake:couriers', 1)
  redis.call('LTRIM', 'cl:wake:couriers', 0, 0)
  redis.call('EXPIRE', 'cl:wake:couriers', 30)
end

-- Say when a host is worth a look; `room` is how many more of its deliveries may be handed out now, if that is known.
local function settle_host(host, room)
  local line, flight = 'cl:due:' .. host, 'cl:flight:' .. host
  local first = redis.call('ZRANGE', line, 0, 0, 'WITHSCORES')
  if not first[1] then
    redis.call('DEL', flight)
    redis.call('ZREM', 'cl:due', host)
    redis.call('ZREM', 'cl:circuits', host)
    redis.call('HDEL', 'cl:failures', host)
    return
  end
  local at = math.max(tonumber(first[2]), tonumber(redis.call('ZSCORE', 'cl:circuits', host) or 0))
  if room and room <= 0 then
    at = math.max(at, tonumber(redis.call('ZRANGE', flight, 0, 0, 'WITHSCORES')[2] or 0))
  end
  redis.call('ZADD', 'cl:due', at, host)
end

-- How many more deliveries a host may have under way: one at a time once it failed, until it answers again.
local function host_room(host, now, most)
  redis.call('ZREMRANGEBYSCORE', 'cl:flight:' .. host, '-inf', now)
  if redis.call('HEXISTS', 'cl:failures', host) == 1 then most = 1 end
  return most - redis.call('ZCARD', 'cl:flight:' .. host)
end

-- Announce an event to a URL: one delivery, due now. `kind` says what `facts` are: 'data', the event's data as JSON, or
-- 'record', a job's hash as it stood, as JSON. `headers` are sent along, as a JSON object.
local function schedule_delivery(event, subject, owner, url, now, ttl, kind, facts, headers)
  local id = delivery_id(subject, event)
  local key, host = delivery_key(id), string.lower(string.match(url, '^%a+://([^/?#]*)') or '')
  if redis.call('EXISTS', key) == 1 then return id end
  redis.call('HSET', key, 'event', event, 'subject', subject, 'owner', owner, 'url', url, 'host', host, 'at_ms', now,
    'since_ms', now, 'attempts', 0, 'tries', 0, 'state', 'pending', kind, facts, 'headers', headers)
  redis.call('EXPIRE', key, math.max(ttl, KEEP_DELIVERY_S))
  redis.call('ZADD', 'cl:deliveries:' .. subject, now, id)
  redis.call('EXPIRE', 'cl:deliveries:' .. subject, math.max(ttl, KEEP_DELIVERY_S))
  redis.call('ZADD', 'cl:due:' .. host, now, id)
  settle_host(host)
  wake_couriers()
  return id
end

-- Announce those of some events of a job that its webhook wants; the job's facts are taken as they stand now. A job
-- without one pays a single look.
local function announce_job(key, job, now, ttl, ...)
  local url, events, owner, request_id, traceparent =
    unpack(redis.call('HMGET', key, 'webhook_url', 'webhook_events', 'owner', 'request_id', 'traceparent'))
  if not url then return end
  local wanted, facts, headers = ',' .. (events or 'job.completed') .. ',', nil, nil
  for _, event in ipairs({ ... }) do
    if string.find(wanted, ',' .. event .. ',', 1, true) then
      if not facts then
        local flat, record = redis.call('HGETALL', key), {}
        for i = 1, #flat, 2 do record[flat[i]] = flat[i + 1] end
        facts = cjson.encode(record)
        headers = cjson.encode({ ['x-request-id'] = request_id or nil, traceparent = traceparent or nil })
      end
      schedule_delivery(event, job, owner, url, now, ttl, 'record', facts, headers)
    end
  end
end

-- A delivery is done for good: delivered, gone or dead.
local function end_delivery(id, host, state, now, ttl)
  local key = delivery_key(id)
  redis.call('HSET', key, 'state', state, 'ended_ms', now)
  redis.call('EXPIRE', key, ttl)
  redis.call('EXPIRE', 'cl:tries:' .. id, ttl)
  redis.call('ZREM', 'cl:due:' .. host, id)
  redis.call('HINCRBY', 'cl:posted', state, 1)
  if state == 'dead' then
    redis.call('ZADD', 'cl:dead', now, id)
    redis.call('ZREMRANGEBYSCORE', 'cl:dead', '-inf', now - 1000 * ttl)
  else
    redis.call('ZREM', 'cl:dead', id)
  end
end

-- A deleted subject leaves nothing behind: what is not delivered yet is not tried again, and its log is forgotten. The
-- report of an attempt under way finds no delivery.
local function forget_deliveries(subject)
  for _, id in ipairs(redis.call('ZRANGE', 'cl:deliveries:' .. subject, 0, -1)) do
    local host = redis.call('HGET', delivery_key(id), 'host')
    redis.call('UNLINK', delivery_key(id), 'cl:tries:' .. id)
    redis.call('ZREM', 'cl:dead', id)
    if host then
      redis.call('ZREM', 'cl:due:' .. host, id)
      redis.call('ZREM', 'cl:flight:' .. host, id)
      settle_host(host)
    end
  end
  redis.call('UNLINK', 'cl:deliveries:' .. subject)
end

