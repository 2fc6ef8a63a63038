-- Webhooks: an event's delivery, when to look at its host, and the outcome of each attempt. Each host has a line of its
-- own, cl:due:HOST, sorted by the time of the next attempt. cl:due has each host with deliveries, sorted by the
-- earliest time at which one may be handed out. So a slow or failing host delays no other.

-- In seconds; longer than all attempts take, whatever results_ttl_s says. So a delivery in progress is not deleted.
local KEEP_DELIVERY_S = 259200

-- The same event of the same subject has the same id, so repeated calls announce it once.
local function delivery_id(subject, event)
  return 'evt_' .. string.gsub(subject, '^%a+_', '') .. '_' .. string.match(event, '([^.]*)$')
end

local function wake_senders()
  call('LPUSH', keys.WAKE_SENDERS, 1)
  call('LTRIM', keys.WAKE_SENDERS, 0, 0)
  call('EXPIRE', keys.WAKE_SENDERS, 30)
end

-- Note when to look at a host again; `room` is how many more of its deliveries may be handed out now, if known.
function deliveries.settle_host(host, room)
  local flight = keys.flight(host)
  local first = call('ZRANGE', keys.due(host), 0, 0, 'WITHSCORES')
  if not first[1] then
    call('DEL', flight)
    call('ZREM', keys.DUE_HOSTS, host)
    call('ZREM', keys.CIRCUITS, host)
    call('HDEL', keys.FAILURES, host)
    return
  end
  local at = math.max(tonumber(first[2]), tonumber(call('ZSCORE', keys.CIRCUITS, host) or 0))
  if room and room <= 0 then
    at = math.max(at, tonumber(call('ZRANGE', flight, 0, 0, 'WITHSCORES')[2] or 0))
  end
  call('ZADD', keys.DUE_HOSTS, at, host)
end

-- How many more deliveries to a host may be in progress. After a failure only one at a time, until the host responds
-- again.
local function host_room(host, now, most)
  call('ZREMRANGEBYSCORE', keys.flight(host), '-inf', now)
  if call('HEXISTS', keys.FAILURES, host) == 1 then most = 1 end
  return most - call('ZCARD', keys.flight(host))
end

-- Announce an event to a URL: one delivery, due now. `kind` says what `facts` are: 'data', the event's data as JSON, or
-- 'record', a job's hash at the time of the event, as JSON. `headers`, a JSON object, are sent along.
function deliveries.schedule(event, subject, owner, url, now, ttl, kind, facts, headers)
  local id = delivery_id(subject, event)
  local key, host = keys.delivery(id), string.lower(string.match(url, '^%a+://([^/?#]*)') or '')
  if call('EXISTS', key) == 1 then return id end
  call('HSET', key, 'event', event, 'subject', subject, 'owner', owner, 'url', url, 'host', host, 'at_ms', now,
    'since_ms', now, 'attempts', 0, 'tries', 0, 'state', 'pending', kind, facts, 'headers', headers)
  call('ZADD', keys.deliveries(subject), now, id)
  for _, kept in ipairs({ key, keys.deliveries(subject) }) do call('EXPIRE', kept, math.max(ttl, KEEP_DELIVERY_S)) end
  call('ZADD', keys.due(host), now, id)
  deliveries.settle_host(host)
  wake_senders()
  return id
end

-- Announce those of some events of a job that its webhook wants, with the job's present facts. `job` has the fields
-- that `reads` lists for these steps.
local ANNOUNCED = { 'webhook_url', 'webhook_events', 'owner', 'request_id', 'traceparent' }
reads('claim', ANNOUNCED)
reads('finish', ANNOUNCED)
function deliveries.announce(job, now, ttl, ...)
  if not job.webhook_url then return end
  local wanted, facts, headers = ',' .. (job.webhook_events or 'job.completed') .. ',', nil, nil
  for _, event in ipairs({ ... }) do
    if string.find(wanted, ',' .. event .. ',', 1, true) then
      if not facts then
        local flat, record = call('HGETALL', job.key), {}
        for i = 1, #flat, 2 do record[flat[i]] = flat[i + 1] end
        facts = cjson.encode(record)
        headers = cjson.encode({ ['x-request-id'] = job.request_id, traceparent = job.traceparent })
      end
      deliveries.schedule(event, job.id, job.owner, job.webhook_url, now, ttl, 'record', facts, headers)
    end
  end
end

-- End a delivery: delivered, gone or dead. The list of its subject is kept as long as what is on it.
local function end_delivery(id, host, state, now, ttl)
  local key = keys.delivery(id)
  call('HSET', key, 'state', state, 'ended_ms', now)
  local all = keys.deliveries(call('HGET', key, 'subject'))
  for _, kept in ipairs({ key, keys.attempts(id), all }) do call('EXPIRE', kept, ttl) end
  for _, other in ipairs(call('ZRANGE', all, 0, -1)) do call('EXPIRE', all, call('TTL', keys.delivery(other)), 'GT') end
  call('ZREM', keys.due(host), id)
  call('HINCRBY', keys.POSTED, state, 1)
  if state == 'delivered' then
    observe_ms('corelane_delivery_seconds', now - tonumber(call('HGET', key, 'at_ms')))
  end
  if state == 'dead' then
    call('ZADD', keys.DEAD, now, id)
    call('ZREMRANGEBYSCORE', keys.DEAD, '-inf', now - 1000 * ttl)
  else
    call('ZREM', keys.DEAD, id)
  end
end

-- Remove every delivery of a deleted subject, with its log. The report of an attempt in progress finds no delivery.
function deliveries.forget(subject)
  for _, id in ipairs(call('ZRANGE', keys.deliveries(subject), 0, -1)) do
    local host = call('HGET', keys.delivery(id), 'host')
    call('UNLINK', keys.delivery(id), keys.attempts(id))
    call('ZREM', keys.DEAD, id)
    if host then
      call('ZREM', keys.due(host), id)
      call('ZREM', keys.flight(host), id)
      deliveries.settle_host(host)
    end
  end
  call('UNLINK', keys.deliveries(subject))
end

-- take_due{limit, lease_ms, most} → deliveries to try now, at most `limit`, and at most `most` in progress for a host
-- Each is due again after `lease_ms` unless it is held or its outcome is reported first. Hosts whose circuit is open
-- are skipped.
local HOSTS_PER_LOOK = 200
define('take_due', function(ask)
  local now, taken = now_ms(), {}
  for _, host in ipairs(call('ZRANGEBYSCORE', keys.DUE_HOSTS, '-inf', now, 'LIMIT', 0, HOSTS_PER_LOOK)) do
    local line = keys.due(host)
    local count = math.min(host_room(host, now, ask.most), ask.limit - #taken)
    if count > 0 then
      for _, id in ipairs(call('ZRANGEBYSCORE', line, '-inf', now, 'LIMIT', 0, count)) do
        if call('EXISTS', keys.delivery(id)) == 1 then
          call('ZADD', line, now + ask.lease_ms, id)
          call('ZADD', keys.flight(host), now + ask.lease_ms, id)
          taken[#taken + 1] = id
        else
          call('ZREM', line, id)
        end
      end
    end
    deliveries.settle_host(host, host_room(host, now, ask.most))
    if #taken >= ask.limit then break end
  end
  return taken
end)

-- hold{lease_ms, deliveries}
-- Their sender is alive and still works on them: none is due again before `lease_ms` from now. If the lease has ended,
-- by a report or because another sender has the delivery, nothing changes. Its host may then be looked at too early,
-- which is harmless.
define('hold', function(ask)
  local lapse = now_ms() + ask.lease_ms
  for _, id in ipairs(ask.deliveries) do
    local host = call('HGET', keys.delivery(id), 'host')
    if host and call('ZSCORE', keys.flight(host), id) then
      call('ZADD', keys.flight(host), lapse, id)
      call('ZADD', keys.due(host), 'XX', lapse, id)
    end
  end
end)

-- fix_payload{id}, payload → the bytes of an event that were stored first; nothing if the delivery is gone
define('fix_payload', function(ask, args)
  local key = keys.delivery(ask.id)
  if call('HEXISTS', key, 'host') == 0 then return false end
  call('HSETNX', key, 'payload', args[2])
  call('HDEL', key, 'data', 'record')
  return call('HGET', key, 'payload')
end)

-- report{id, outcome, well, pause_ms, host_pause_ms, ttl, dead_ttl, window_ms, most, failures, circuit_ms}, entry → its
-- state
-- One attempt is over: `delivered`, `gone` or `failed`. A failed one is due again after `pause_ms`. It is dead if
-- `pause_ms` is negative or its `window_ms` is over. `well` says that the host answered properly. After `failures` bad
-- replies in a row the host rests for `circuit_ms`, and is then tried with one delivery; if that fails too, the host
-- rests as long again. A delivered delivery stays delivered: a late report is only logged.
local LOG_ENTRIES, REAP_AT_ONCE = 50, 200
define('report', function(ask, args)
  local id, now = ask.id, now_ms()
  local key, log = keys.delivery(id), keys.attempts(id)
  local host, state, since = unpack(call('HMGET', key, 'host', 'state', 'since_ms'))
  if not host then return '' end
  local line = keys.due(host)
  call('ZREM', keys.flight(host), id)
  call('HINCRBY', key, 'attempts', 1)
  call('HINCRBY', key, 'tries', 1)
  call('RPUSH', log, args[2])
  call('LTRIM', log, -LOG_ENTRIES, -1)
  call('EXPIRE', log, call('TTL', key))

  if ask.well then
    call('HDEL', keys.FAILURES, host)
    call('ZREM', keys.CIRCUITS, host)
  else
    if call('HINCRBY', keys.FAILURES, host, 1) >= ask.failures then
      call('ZADD', keys.CIRCUITS, 'GT', now + ask.circuit_ms, host)
    end
    if ask.host_pause_ms > 0 then call('ZADD', keys.CIRCUITS, 'GT', now + ask.host_pause_ms, host) end
  end

  if state == 'pending' then
    if ask.outcome ~= 'failed' then
      state = ask.outcome
      end_delivery(id, host, state, now, ask.ttl)
    elseif ask.pause_ms < 0 or now - since > ask.window_ms then
      state = 'dead'
      end_delivery(id, host, state, now, ask.dead_ttl)
    else
      call('HINCRBY', keys.POSTED, 'failed', 1)
      call('ZADD', line, now + ask.pause_ms, id)
    end
  end
  -- Deliveries that waited behind a dead host for as long as all attempts would have taken are given up as well.
  if not ask.well then
    for _, other in ipairs(call('ZRANGE', line, 0, REAP_AT_ONCE - 1)) do
      local began = call('HGET', keys.delivery(other), 'since_ms')
      if not began then
        call('ZREM', line, other)
      elseif now - began > ask.window_ms and not call('ZSCORE', keys.flight(host), other) then
        end_delivery(other, host, 'dead', now, ask.dead_ttl)
      end
    end
  end
  deliveries.settle_host(host, host_room(host, now, ask.most))
  wake_senders()
  return state
end)

-- redeliver{id} → 1 if it is due now, 0 if there is no such delivery
-- Attempts begin again from the first; the delivery keeps its id, its bytes and its log. Its host is tried again at once.
define('redeliver', function(ask)
  local id, now = ask.id, now_ms()
  local key = keys.delivery(id)
  local host, subject = unpack(call('HMGET', key, 'host', 'subject'))
  if not host then return 0 end
  call('HSET', key, 'state', 'pending', 'tries', 0, 'since_ms', now)
  call('HDEL', key, 'ended_ms')
  for _, kept in ipairs({ key, keys.attempts(id), keys.deliveries(subject) }) do
    call('EXPIRE', kept, math.max(call('TTL', kept), KEEP_DELIVERY_S))
  end
  call('ZREM', keys.DEAD, id)
  if not call('ZSCORE', keys.flight(host), id) then
    local first = call('ZRANGE', keys.due(host), 0, 0, 'WITHSCORES')[2]
    call('ZADD', keys.due(host), math.min(now, tonumber(first or now) - 1), id)
  end
  call('ZREM', keys.CIRCUITS, host)
  deliveries.settle_host(host)
  wake_senders()
  return 1
end)
