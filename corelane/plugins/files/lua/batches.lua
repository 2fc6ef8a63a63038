-- Files and batches: register, take steps, cancel. `fields` holds names, each followed by its value.

on('overdue', function(add_wait, since) add_wait('batches', since('batches', keys.BATCHING)) end)

-- Register a file that is in the storage of files, for `ttl_ms`. → created_ms
local function keep_file(file, owner, ttl_ms, fields)
  local now = now_ms()
  call('HSET', keys.file(file), 'owner', owner, 'created_ms', now, 'expires_ms', now + ttl_ms, unpack(fields))
  call('ZADD', keys.files(owner), 0, file)
  call('ZADD', keys.RETIRING, now + ttl_ms, file)
  return now
end

-- keep_file{file, owner, ttl_ms, fields} → created_ms
define('keep_file', function(ask)
  return admission.refuse() or keep_file(ask.file, ask.owner, ask.ttl_ms, ask.fields)
end)

-- begin_batch{batch, owner, window_ms, once, fingerprint, once_ttl_s, fields, file} → nil, or the holder of `once`
-- Store a new batch, and register its input if that is a new `file`; an existing one stays as it is. `once` is a key
-- that one batch may hold, for `once_ttl_s`: see submit.
define('begin_batch', function(ask)
  local batch, once, now = ask.batch, ask.once, now_ms()
  local key = keys.batch(batch)
  if call('EXISTS', key) == 1 then return false end
  local refused = not (once and call('EXISTS', once) == 1) and admission.refuse()
  if refused then return refused end
  if once and not call('SET', once, batch .. ' ' .. ask.fingerprint, 'NX', 'EX', ask.once_ttl_s) then
    return call('GET', once)
  end
  call('HSET', key, 'owner', ask.owner, 'status', 'validating', 'created_ms', now, 'expires_ms', now + ask.window_ms,
    unpack(ask.fields))
  call('ZADD', keys.batches(ask.owner), 0, batch)
  call('ZADD', keys.BATCHING, now, batch)
  if ask.file then keep_file(ask.file.id, ask.owner, ask.file.ttl_ms, ask.file.fields) end
  return false
end)

-- step_batch{batch, holder, fence, from, to, ttl_ms, fields, files: [{id, ttl_ms, fields}…], event: {at_ms, url, data,
--   headers}} → 1 if the step was taken, 0 if the status differs or another keeper has the lease
-- The files are registered. With ttl_ms above 0 the batch is final and forgotten after that time; `event` announces it.
define('step_batch', function(ask)
  local key, event = keys.batch(ask.batch), ask.event
  local now = event and event.at_ms or now_ms()
  local fence = tonumber(call('HGET', keys.FENCES, keys.BATCHER) or nil)
  if call('GET', keys.BATCHER) ~= ask.holder or (fence or ask.fence) ~= ask.fence then return 0 end
  local status, owner = unpack(call('HMGET', key, 'status', 'owner'))
  if status ~= ask.from then return 0 end
  if #ask.fields > 0 then call('HSET', key, unpack(ask.fields)) end
  for _, file in ipairs(ask.files) do keep_file(file.id, owner, file.ttl_ms, file.fields) end
  if ask.to ~= ask.from then call('HSET', key, 'status', ask.to, ask.to .. '_ms', now) end
  if ask.ttl_ms > 0 then
    call('ZREM', keys.BATCHING, ask.batch)
    call('ZADD', keys.RETIRING, now + ask.ttl_ms, ask.batch)
  end
  if event then
    deliveries.schedule('batch.' .. ask.to, ask.batch, owner, event.url, now, ask.ttl_ms / 1000, 'data', event.data,
      event.headers)
  end
  return 1
end)

-- cancel_batch{batch}: what is answered by now is kept; a batch that is being finished, or final, stays as it is
define('cancel_batch', function(ask)
  local key = keys.batch(ask.batch)
  local status = call('HGET', key, 'status')
  if status == 'validating' or status == 'in_progress' then
    call('HSET', key, 'status', 'cancelling', 'cancelling_ms', now_ms())
  end
end)
