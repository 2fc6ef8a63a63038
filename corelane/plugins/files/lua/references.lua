-- Jobs whose items are read from a URL, or whose results are written to one. The steps are taken by the keeper with the
-- lease. Each starts from the state that was read, so a keeper that was delayed changes nothing.

on('submit', function(job, ask)
  if ask.input then call('ZADD', keys.READING, job.now, job.id) end
end)

on('finished', function(job)
  if job.output_url then call('ZADD', keys.WRITING, job.now, job.id) end
end, { 'output_url' })

-- Whether a job is open and its input has been read as far as `before` says.
local function is_at(key, before)
  local status, input = unpack(call('HMGET', key, 'status', 'input'))
  return is_open(status) and (input or '') == before
end

-- note_input{job, before, after, retry_ms} → 1 if noted, 0 if the job is final or another keeper has gone on
-- Note how far an input was read. With `retry_ms`, the input is tried again after that time.
define('note_input', function(ask)
  local key = keys.job(ask.job)
  if not is_at(key, ask.before) then return 0 end
  call('HSET', key, 'input', ask.after)
  if ask.retry_ms then call('ZADD', keys.READING, 'XX', now_ms() + ask.retry_ms, ask.job) end
  return 1
end)

-- begin_items{job, before, after, file, parts, items, tokens} → 1 if begun, 0 as for note_input
-- Note that an input was read to its end: its items are in files, and are fed from now on.
define('begin_items', function(ask)
  local key, now = keys.job(ask.job), now_ms()
  if not is_at(key, ask.before) then return 0 end
  call('HSET', key, 'input', ask.after, 'parts', ask.parts, 'total', ask.items, 'left', ask.items)
  jobs.add_file(ask.job, ask.file, ask.tokens, now)
  call('ZREM', keys.READING, ask.job)
  count('corelane_items_submitted_total|', call('HGET', key, 'version'), ask.items)
  return 1
end)

-- note_output{job, output, done, retry_ms, hold_s} → 1, or 0 if there is no such job any more
-- Note the outcome of a final job's output. If it is `done`, it is not tried again, and a webhook reports it. Else it
-- is tried again after `retry_ms`, and the job is kept for `hold_s` at least.
define('note_output', function(ask)
  local key, job = keys.job(ask.job), ask.job
  if call('EXISTS', key) == 0 then
    call('ZREM', keys.WRITING, job)
    return 0
  end
  call('HSET', key, 'output', ask.output)
  if ask.done then
    if call('HSET', key, 'output_done', 1) == 1 then
      deliveries.announce(read_job('finish', job), now_ms(), call('TTL', key), 'job.output')
    end
    call('ZREM', keys.WRITING, job)
    return 1
  end
  call('ZADD', keys.WRITING, 'XX', now_ms() + ask.retry_ms, job)
  for _, each in ipairs({ key, keys.results(job), keys.payloads(job), keys.shared_texts(job) }) do
    call('EXPIRE', each, ask.hold_s, 'GT')
  end
  return 1
end)
