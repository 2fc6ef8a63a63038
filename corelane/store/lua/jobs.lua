-- Jobs: submitted, fed, answered, ended once, and forgotten.

-- Shortest time between two reports of a job's progress, in milliseconds; and about how many of its last events are
-- kept.
local PROGRESS_MS, KEPT_EVENTS = 500, 1000

-- Add an event to a job's events. Its id is a time, and greater than all ids before it even if the clock was set back.
-- The first and last events are in the job's hash. Only an event between them begins the stream, as a stream takes 4
-- kB.
function jobs.add_event(job, event, ...)
  if call('EXISTS', keys.job_events(job)) == 0 then
    local started = call('HGET', keys.job(job), 'started_ms') or string.format('%.0f', now_ms())
    call('XADD', keys.job_events(job), started .. '-0', 'event', 'job.running')
  end
  return call('XADD', keys.job_events(job), 'MAXLEN', '~', KEPT_EVENTS, '*', 'event', event, ...)
end

-- The time from which a job may begin, in milliseconds: its `not_before`, or when it was created.
function jobs.due_ms(created_ms, not_before_ms)
  return math.max(tonumber(created_ms or now_ms()), tonumber(not_before_ms or 0))
end

-- Begin a job, at its first claim.
reads('claim', { 'created_ms', 'not_before_ms' })
function jobs.begin_job(id, status, priority, ttl)
  if status ~= 'queued' then return end
  local job, now = read_job('claim', id), now_ms()
  call('HSET', job.key, 'status', 'running', 'started_ms', now, 'notified_ms', now)
  deliveries.announce(job, now, ttl, 'job.running')
  observe_ms(WAIT_SERIES[priority], now - jobs.due_ms(job.created_ms, job.not_before_ms))
end

-- The owner of a job, and its tokens that are still in its file.
function jobs.unfed(job)
  local owner, tokens, fed = unpack(call('HMGET', keys.job(job), 'owner', 'file_tokens', 'fed_tokens'))
  return owner, tonumber(tokens) - tonumber(fed)
end

-- The first jobs that are fed from files.
function jobs.first_fed(most) return call('ZRANGE', keys.FEEDS, 0, most - 1) end

-- Keep a final job's data for `job.ttl` seconds. Items and shared texts are kept only if a retry could need some of them.
-- Items in a file stay there; the feeder removes the file. The keeper cleans up after the job (cl:keeping).
local function retain(job)
  local id, file, ttl = job.id, job.file, job.ttl
  local payloads, texts = keys.payloads(id), keys.shared_texts(id)
  call('EXPIRE', job.key, ttl)
  call('EXPIRE', keys.results(id), ttl)
  if job.dropped then call('EXPIRE', keys.dropped(id), ttl) end
  if job.once then call('EXPIRE', job.once, ttl) end
  if job.is_whole then
    call('UNLINK', payloads, texts)
  else
    call('EXPIRE', texts, ttl)
    local is_cut = job.status == 'canceled' or job.status == 'expired'
    if is_cut or not file then call('EXPIRE', payloads, ttl) else call('UNLINK', payloads) end
  end
  if file then call('ZADD', keys.FEEDS, job.now, id) end
  call('ZADD', keys.KEEPING, job.kept_until, job.owner .. ':' .. id .. (file and ':file' or ''))
end

-- Tell all who wait for a job that it has ended: its id. To the API process that submitted it for a caller who waits
-- (`tell`) the job's fields as JSON and, in the next line, the result of its only item follow, which saves a trip.
local MOST_TOLD_BYTES = 8192
local function tell_end(id, job)
  call('PUBLISH', keys.done(id), id)
  if not job.tell then return end
  local results, message = keys.results(id), id
  if job.total == '1' and call('HSTRLEN', results, 0) <= MOST_TOLD_BYTES then
    message = id .. ' ' .. cjson.encode(call('HGETALL', keys.job(id))) .. '\n' .. (call('HGET', results, 0) or '')
  end
  call('PUBLISH', keys.done(job.tell), message)
end

-- Remove a job that ends from all accounts of open ones.
local function close_accounts(job)
  drop_refs(job.id, job.version)
  local unfed = job.file and job.file_tokens - job.fed_tokens or 0
  if unfed ~= 0 then add(keys.UNFED, job.owner, -unfed) end
  add(keys.JOB_COUNTS, job.version, -1)
  if job.expires_ms then call('ZREM', keys.EXPIRING, job.id) end
  call('SREM', keys.open_jobs(job.priority or '1'), job.id)
end

-- End a job, once: status, event, webhook, and the message to all who wait. Callers check that it is open. `commit` is
-- the call of the core whose results end it, if there is one.
reads('finish', {
  'priority', 'file', 'file_tokens', 'fed_tokens', 'version', 'created_ms', 'owner', 'failed', 'tell', 'total', 'keep_s', 'once',
  'dropped', 'expires_ms', 'not_before_ms',
})
local function finish(id, status, ttl, commit)
  local job, now = read_job('finish', id), now_ms()
  local changes, due = {}, math.min(now, jobs.due_ms(job.created_ms, job.not_before_ms))
  job.status, job.now, job.commit = status, now, commit
  job.is_whole = status == 'succeeded' and tonumber(job.failed) == 0
  job.ttl = math.min(tonumber(job.keep_s) or ttl, ttl)
  job.kept_until = now + job.ttl * 1000
  hooks.finish(job, changes)
  write_fields(job.key, changes, 'status', status, 'finished_ms', now, 'kept_until_ms', job.kept_until)
  close_accounts(job)
  retain(job)
  count_end(status, job.priority or '1', now - due)
  hooks.finished(job)
  call('XADD', keys.ENDS, 'MAXLEN', '~', 10000, '*', 'job', id, 'status', status)
  deliveries.announce(job, now, job.ttl, 'job.completed', 'job.' .. status)
  if call('EXISTS', keys.job_events(id)) == 1 then
    call('HSET', job.key, 'story_end', jobs.add_event(id, 'job.completed'))
    call('EXPIRE', keys.job_events(id), job.ttl)
  end
  tell_end(id, job)
end

-- Store the results of one slice of work; return true if its job still wants them. The last ones finish the job.
-- Others report its progress, unless that was done a moment ago (`notified_ms`, set when the job began). `commit` is the
-- call of the core that answered, if there is one.
reads('settle', { 'status', 'notified_ms', 'version', 'results_window', 'succeeded', 'failed', 'left' })
function jobs.settle(id, first, blob, succeeded, failed, ttl, commit)
  local job = read_job('settle', id)
  if not is_open(job.status) then return false end
  if call('HSETNX', keys.results(id), first, blob) == 0 then return false end
  count_items(job.version, '|succeeded', succeeded)
  count_items(job.version, '|failed', failed)
  count('corelane_result_bytes_total|', job.version, #blob)
  if job.results_window then add(keys.WINDOWED, job.version, -(succeeded + failed)) end
  local ok, lost, left = job.succeeded + succeeded, job.failed + failed, job.left - succeeded - failed
  call('HSET', job.key, 'succeeded', ok, 'failed', lost, 'left', left)
  hooks.settle(job, {
    first = first, blob = blob, succeeded = succeeded, failed = failed, commit = commit,
    is_first_failure = failed > 0 and lost == failed,
  })
  if left == 0 then
    finish(id, ok > 0 and 'succeeded' or 'failed', ttl, commit)
  elseif now_ms() - tonumber(job.notified_ms or 0) >= PROGRESS_MS then
    call('HSET', job.key, 'notified_ms', now_ms())
    jobs.add_event(id, 'job.progress', 'succeeded', ok, 'failed', lost)
  end
  return true
end

-- End a job as canceled or expired: its results stay, its other items never reach a model.
function jobs.cut_short(job, status, ttl)
  jobs.let_in(job)
  local key = keys.job(job)
  local left, version, window = unpack(call('HMGET', key, 'left', 'version', 'results_window'))
  count_items(version, '|' .. status, tonumber(left))
  if window then add(keys.WINDOWED, version, -left) end
  call('HSET', key, status, left, 'left', 0)
  finish(job, status, ttl)
end

-- Have a job that did not begin yet ask another version, if its model does not mean its own any more.
function jobs.follow(id)
  local key = keys.job(id)
  local version, asked, total, window = unpack(call('HMGET', key, 'version', 'asked', 'total', 'results_window'))
  local meant = version and admission.meant_now(asked, version)
  if not meant then return end
  call('HSET', key, 'version', meant)
  add(keys.JOB_COUNTS, version, -1)
  add(keys.JOB_COUNTS, meant, 1)
  if window then return end
  -- Its items were counted as submitted to the former version, and are answered by the other.
  add(keys.WINDOWED, version, total)
  add(keys.WINDOWED, meant, -total)
end

-- Have the refs of a job wait for its time, outside of the lanes. They count as waiting for its owner.
local function defer(id, refs)
  for _, text in ipairs(refs) do
    local ref = parse(text)
    charge(keys.DEFERRED, ref.owner, ref, ref.tokens)
    call('RPUSH', keys.refs(id), text)
  end
end

-- Let a job that waits for its time in: its refs into the lanes, its file to be fed. It asks the version that its model
-- means now. One that ends before its time is let in first. → how many refs
function jobs.let_in(id, envelope)
  if call('ZREM', keys.LATER, id) == 0 then return 0 end
  local refs, waiting = {}, call('LRANGE', keys.refs(id), 0, -1)
  call('DEL', keys.refs(id))
  for _, text in ipairs(waiting) do
    local ref = parse(text)
    if ref then
      charge(keys.DEFERRED, ref.owner, ref, -ref.tokens)
      refs[#refs + 1] = text
    end
  end
  jobs.follow(id)
  local version, file = unpack(call('HMGET', keys.job(id), 'version', 'file'))
  if file then call('ZADD', keys.FEEDS, now_ms(), id) end
  enqueue(version, refs, envelope, false)
  return #refs
end

-- Note that a job's items are in a file, from which the keeper feeds them once its time has come.
function jobs.add_file(job, file, tokens, now)
  call('HSET', keys.job(job), 'file', file, 'file_tokens', tokens, 'fed', 0, 'fed_bytes', 0, 'fed_tokens', 0)
  add(keys.UNFED, jobs.unfed(job))
  if not call('ZSCORE', keys.LATER, job) then call('ZADD', keys.FEEDS, now, job) end
end

-- Take payloads out of the arguments of a call, and store them by the index of their first item.
local function keep_payloads(job, firsts, args)
  local before = #args - #firsts
  for i, first in ipairs(firsts) do
    call('HSET', keys.payloads(job), first, args[before + i])
    args[before + i] = nil
  end
end

-- The reply to a submit whose `once` another job holds: for `once_ttl_s`, or if that is 0 while that job is kept.
local function find_holder(ask)
  local holder = ask.once and call('GET', ask.once)
  if holder and (ask.once_ttl_s > 0 or call('EXISTS', keys.job(string.match(holder, '^%S+'))) == 1) then
    return { -1, holder }
  end
end

-- Store the input that comes with the call; or keep the input that was written just before, which would expire.
-- → an error if it has expired
local function keep_input(job, ask, args)
  if ask.firsts then return keep_payloads(job.id, ask.firsts, args) end
  if not ask.file and not ask.input and call('PERSIST', keys.payloads(job.id)) == 0 then
    return redis.error_reply('PAYLOADGONE the payloads of this job expired before it was submitted')
  end
  call('PERSIST', keys.shared_texts(job.id))
end

-- Add a job to the list of its owner, to its `once`, to the index, and to the lists of what it waits for.
-- → the time at which it expires, or nil
local function list_job(job, ask)
  local id, once, fields = job.id, ask.once, job.fields
  call('ZADD', keys.owner_jobs(fields.owner), 0, id)
  if once then
    call('SET', once, id .. ' ' .. ask.fingerprint)
    if ask.once_ttl_s > 0 then call('EXPIRE', once, ask.once_ttl_s) else call('HSET', job.key, 'once', once) end
  end
  local expires_ms = ask.expires_in_ms > 0 and job.now + ask.expires_in_ms
  if expires_ms then
    call('HSET', job.key, 'expires_ms', expires_ms)
    call('ZADD', keys.EXPIRING, expires_ms, id)
  end
  if ask.file then jobs.add_file(id, ask.file, ask.file_tokens, job.now) end
  call('HINCRBY', keys.JOB_COUNTS, ask.version, 1)
  count('corelane_jobs_submitted_total|', ask.version, 1)
  count('corelane_items_submitted_total|', ask.version, fields.total)
  call('SADD', keys.open_jobs(job.priority), id)
  return expires_ms
end

-- submit{job, version, assumed, envelope, expires_in_ms, file, file_tokens, once, fingerprint, once_ttl_s, input,
-- fields, firsts}, ref…, payload… → {1 if new, created_ms, expires_ms or nil}, or {-1, `JOB FINGERPRINT` of the holder of
-- `once`}
-- Writes the job, its refs in the lanes and the bells, in one step. A few payloads come with the call: `firsts` are
-- their first items. Others were written just before, or are in a file from which the keeper feeds them. A version that
-- was closed since the job was admitted does not take it, nor if something `assumed` is not true. `once` is a key that one job may hold. `fields` are written
-- to the job's hash. With `input` its items are at a URL, and are read from there first.
define('submit', function(ask, args)
  local id, fields = ask.job, ask.fields
  local job = { id = id, key = keys.job(id), now = now_ms(), fields = fields, priority = tostring(fields.priority) }
  if call('EXISTS', job.key) == 1 then return { 0, unpack(call('HMGET', job.key, 'created_ms', 'expires_ms')) } end
  local held = find_holder(ask)
  if held then return held end
  local assumed = ask.assumed
  if call('HEXISTS', keys.CLOSED, ask.version) == 1
    or assumed and not admission.is_as_assumed(assumed, ask.version, fields.owner) then
    return redis.error_reply('VERSIONCLOSED ' .. ask.version .. ' takes no more jobs')
  end
  local stays = not fields.results_window
  local refused = admission.refuse(ask.version, stays and fields.total or 0)
  if refused then call('UNLINK', keys.payloads(id), keys.shared_texts(id)) end
  refused = refused or keep_input(job, ask, args)
  if refused then return refused end
  if not stays then add(keys.WINDOWED, ask.version, fields.total) end
  hooks.submit(job, ask)
  write_fields(job.key, fields, 'status', 'queued', 'version', ask.version, 'created_ms', job.now,
    'succeeded', 0, 'failed', 0, 'canceled', 0, 'expired', 0)
  local is_later = (fields.not_before_ms or 0) > job.now
  if is_later then call('ZADD', keys.LATER, fields.not_before_ms, id) end
  local expires_ms = list_job(job, ask)
  table.remove(args, 1)
  if is_later then defer(id, args) else enqueue(ask.version, args, ask.envelope, false) end
  return { 1, job.now, expires_ms }
end)

-- feed{job, fed, fed_after, bytes_after, tokens_after, envelope, failed: [[first, results, count]…], firsts, ttl}, ref…,
-- payload… → 1 if fed, 0 if another was first, -1 if final
-- Adds the next slices of a job whose items are in a file; `firsts` are the first items of their payloads. `failed` are
-- invalid lines: they fail at once.
define('feed', function(ask, args)
  local job, key = ask.job, keys.job(ask.job)
  local status, version, fed = unpack(call('HMGET', key, 'status', 'version', 'fed'))
  if not is_open(status) then return -1 end
  if tonumber(fed) ~= ask.fed then return 0 end
  local owner, before = jobs.unfed(job)
  call('HSET', key, 'fed', ask.fed_after, 'fed_bytes', ask.bytes_after, 'fed_tokens', ask.tokens_after)
  local _, left = jobs.unfed(job)
  add(keys.UNFED, owner, left - before)
  keep_payloads(job, ask.firsts or {}, args)
  table.remove(args, 1)
  enqueue(version, args, ask.envelope, false)
  for _, bad in ipairs(ask.failed or {}) do jobs.settle(job, bad[1], bad[2], 0, bad[3], ask.ttl) end
  return 1
end)

-- fail{job, ttl, error} → 1 if it failed now. Answered items stay, all others fail with the same error, as JSON.
define('fail', function(ask)
  local key = keys.job(ask.job)
  jobs.let_in(ask.job)
  local status, left, ok, version, window = unpack(call('HMGET', key, 'status', 'left', 'succeeded', 'version', 'results_window'))
  if not is_open(status) then return 0 end
  count_items(version, '|failed', tonumber(left))
  if window then add(keys.WINDOWED, version, -left) end
  call('HINCRBY', key, 'failed', left)
  call('HSET', key, 'left', 0, 'error', ask.error)
  finish(ask.job, tonumber(ok) > 0 and 'succeeded' or 'failed', ask.ttl)
  return 1
end)

-- cancel{job, ttl} → 1 if canceled now, 0 if it was final already, -1 if there is no such job
define('cancel', function(ask)
  local status = call('HGET', keys.job(ask.job), 'status')
  if not status then return -1 end
  if not is_open(status) then return 0 end
  jobs.cut_short(ask.job, 'canceled', ask.ttl)
  return 1
end)

-- delete{job, ttl} → 1 if deleted, 0 if there is no such job
-- Cancels an open job first, so that all who wait for it are told; then deletes all its data. Its waiting refs are
-- skipped like those of any final job. The feeder removes its file, if it has one.
reads('forget', { 'status', 'owner', 'once', 'file' })
define('delete', function(ask)
  local id, job = ask.job, read_job('forget', ask.job)
  if not job.status then return 0 end
  if is_open(job.status) then jobs.cut_short(id, 'canceled', ask.ttl) end
  hooks.forget(job)
  if job.once and string.match(call('GET', job.once) or '', '^%S+') == id then call('DEL', job.once) end
  if job.file then call('ZADD', keys.FEEDS, now_ms(), id) end
  call('ZREM', keys.KEEPING, job.owner .. ':' .. id .. (job.file and ':file' or ''))
  deliveries.forget(id)
  call('UNLINK', job.key, keys.payloads(id), keys.shared_texts(id), keys.results(id), keys.dropped(id),
    keys.job_events(id))
  return 1
end)

-- drop{job, before, firsts, failed} → index of the first result kept; 0 if there is no such job
-- Deletes results that the caller has read: all before an index, in the slices with these first items. For a retry,
-- notes that the items with the indexes in `failed` failed. Results that still have to be written to a URL are not
-- deleted.
define('drop', function(ask)
  local key, firsts, marks = keys.job(ask.job), ask.firsts, keys.dropped(ask.job)
  if call('EXISTS', key) == 0 then return 0 end
  local dropped, output, outcome = unpack(call('HMGET', key, 'dropped', 'output_url', 'output_done'))
  dropped = tonumber(dropped or 0)
  if ask.before <= dropped or (output and not outcome) then return dropped end
  for i = 1, #firsts, 1000 do
    call('HDEL', keys.results(ask.job), unpack(firsts, i, math.min(i + 999, #firsts)))
  end
  for _, item in ipairs(ask.failed) do call('SETBIT', marks, item, 1) end
  local left_ms = call('PTTL', key)
  if left_ms > 0 then call('PEXPIRE', marks, left_ms) end
  call('HSET', key, 'dropped', ask.before)
  return ask.before
end)
