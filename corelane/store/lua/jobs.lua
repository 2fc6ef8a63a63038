-- Jobs: submitted, fed, answered, ended once, and forgotten.

-- A job reports its progress at most this often, in milliseconds, and keeps about this many of its last events.
local PROGRESS_MS, KEPT_EVENTS = 500, 1000

-- Add an event to a job's events; its id is a time, but greater than those before it even if the clock was set back. The
-- stream is begun by the first event between beginning and end, which the job's hash has: a stream takes 4 kB.
function jobs.add_event(job, event, ...)
  if call('EXISTS', keys.job_events(job)) == 0 then
    local started = call('HGET', keys.job(job), 'started_ms') or string.format('%.0f', now_ms())
    call('XADD', keys.job_events(job), started .. '-0', 'event', 'job.running')
  end
  return call('XADD', keys.job_events(job), 'MAXLEN', '~', KEPT_EVENTS, '*', 'event', event, ...)
end

-- A job's work begins: by its first claim, or because an answer for it is there or is being computed.
function jobs.begin_job(job, status, priority, ttl)
  if status ~= 'queued' then return end
  local key, now = keys.job(job), now_ms()
  local created, times = unpack(call('HMGET', key, 'created_ms', 'times'))
  local more = times and { 'times', timing.claimed_times(times) } or {}
  call('HSET', key, 'status', 'running', 'started_ms', now, 'told_ms', now, unpack(more))
  deliveries.announce(key, job, now, ttl, 'job.running')
  observe_ms(WAIT_SERIES[priority], now - tonumber(created or now))
end

-- The account (OWNER:P) of a job, its tokens that still stand in its file, and its owner.
function jobs.unfed(job)
  local key = keys.job(job)
  local owner, priority, tokens, fed = unpack(call('HMGET', key, 'owner', 'priority', 'file_tokens', 'fed_tokens'))
  return owner .. ':' .. priority, tonumber(tokens) - tonumber(fed), owner
end

-- The first jobs that are fed from files, wherever those are.
function jobs.first_fed(most)
  local found = call('ZRANGE', keys.FEEDS, 0, most - 1)
  for _, job in ipairs(call('ZRANGE', keys.STORED_FEEDS, 0, most - 1)) do found[#found + 1] = job end
  return found
end

local function keep_or_remove(key, is_kept, ttl)
  if is_kept then call('EXPIRE', key, ttl) else call('UNLINK', key) end
end

-- Set how long a final job's data are kept: items and contexts only while a retry could ask for some of them again. Items
-- in a file stay there; the feeder removes the file. The keeper clears up after the job (cl:keeping).
-- → the seconds it is kept for
local function retain(job, status, ttl, now)
  local key = keys.job(job)
  local keep_s, owner, once, file, failed, stored =
    unpack(call('HMGET', key, 'keep_s', 'owner', 'once', 'file', 'failed', 'stored'))
  ttl = math.min(tonumber(keep_s) or ttl, ttl)
  call('HSET', key, 'kept_until_ms', now + ttl * 1000)
  call('EXPIRE', key, ttl)
  call('EXPIRE', keys.results(job), ttl)
  call('EXPIRE', keys.dropped(job), ttl)
  if tonumber(failed) > 0 then call('EXPIRE', keys.failures(job), ttl) end
  if once then call('EXPIRE', once, ttl) end
  local is_whole = status == 'succeeded' and tonumber(failed) == 0
  local is_cut = status == 'canceled' or status == 'expired'
  if stored and is_whole then contexts.leave(job, owner, stored) end
  keep_or_remove(keys.contexts(job), not is_whole, ttl)
  keep_or_remove(keys.payloads(job), not is_whole and (is_cut or not file), ttl)
  if file then call('ZADD', keys.FEEDS, now, job) end
  call('ZADD', keys.KEEPING, now + ttl * 1000, owner .. ':' .. job .. (file and ':file' or ''))
  return ttl
end

-- What is published when a job ends: its id, and for a job of one item whose caller waits (`tell`) all that the caller is
-- answered from, as JSON: the job's fields and its result. That saves a trip.
local MOST_TOLD_BYTES = 8192
local function told(job, tell)
  local results = keys.results(job)
  if tell ~= '1' or call('HSTRLEN', results, 0) > MOST_TOLD_BYTES then return job end
  return job .. ' ' .. cjson.encode({ call('HGETALL', keys.job(job)), call('HGET', results, 0) })
end

-- End a job, once: status, event, webhook, and the wake-up of all who wait. Callers check that it is open. `commit` is the
-- call of the core whose results end it, if one's do.
local function finish(job, status, ttl, commit)
  local key, now = keys.job(job), now_ms()
  local priority, file, version, created, promise, times, owner, failed, so_far, output, tell, reckoned = unpack(call('HMGET',
    key, 'priority', 'file', 'version', 'created_ms', 'promise', 'times', 'owner', 'failed', 'usage', 'output_url', 'tell',
    'reckoned'))
  local ended = times and timing.ended_times(job, times, commit)
  local used = commit and usage.use(commit, job, owner, version, so_far)
  if ended and used then
    call('HSET', key, 'status', status, 'finished_ms', now, 'times', ended, 'usage', used)
  else
    local name, value = ended and 'times' or used and 'usage', ended or used
    call('HSET', key, 'status', status, 'finished_ms', now, name or 'status', value or status)
  end
  index.close(owner, job, status, failed)
  drop_refs(job, version)
  ttl = retain(job, status, ttl, now)
  if file then
    local account, tokens = jobs.unfed(job)
    if tokens ~= 0 then add(keys.UNFED, account, -tokens) end
  end
  if output then call('ZADD', keys.WRITING, now, job) end
  add(keys.JOB_COUNTS, version, -1)
  call('ZREM', keys.EXPIRING, job)
  call('SREM', keys.open_jobs(priority or '1'), job)
  -- A pause is no fault of promises and forecasts: what waited through one tells nothing of them.
  local resumed = (promise or reckoned) and call('GET', keys.RESUMED)
  if resumed and tonumber(resumed) >= tonumber(created or now) then promise, reckoned = nil, nil end
  count_end(status, priority or '1', promise, now - tonumber(created or now))
  if commit and reckoned then learn_residual(version, reckoned, now - tonumber(created or now)) end
  call('XADD', keys.ENDS, 'MAXLEN', '~', 10000, '*', 'job', job, 'status', status)
  deliveries.announce(key, job, now, ttl, 'job.completed', 'job.' .. status)
  if call('EXISTS', keys.job_events(job)) == 1 then
    call('HSET', key, 'story_end', jobs.add_event(job, 'job.completed'))
    call('EXPIRE', keys.job_events(job), ttl)
  end
  call('PUBLISH', keys.DONE, told(job, tell))
end

-- Keep the results of one stretch of work, if its job still wants them (true). The last ones finish the job; others report
-- its progress if that was not done lately (`told_ms`, set when the job began). `commit` is the call of the core that
-- answered, if one did.
function jobs.answer(job, first, blob, succeeded, failed, ttl, commit)
  local key = keys.job(job)
  local status, told, version, digests, owner = unpack(call('HMGET', key, 'status', 'told_ms', 'version', 'digests', 'owner'))
  if not is_open(status) then return false end
  if call('HSETNX', keys.results(job), first, blob) == 0 then return false end
  count_items(version, '|succeeded', succeeded)
  count_items(version, '|failed', failed)
  if commit then usage.note_items(commit, job, succeeded + failed) end
  local ok = call('HINCRBY', key, 'succeeded', succeeded)
  local lost = call('HINCRBY', key, 'failed', failed)
  if failed > 0 then index.note_failures(job, first, failed, lost == failed, blob) end
  if call('HINCRBY', key, 'left', -(succeeded + failed)) == 0 then
    finish(job, ok > 0 and 'succeeded' or 'failed', ttl, commit)
  elseif now_ms() - tonumber(told or 0) >= PROGRESS_MS then
    call('HSET', key, 'told_ms', now_ms())
    jobs.add_event(job, 'job.progress', 'succeeded', ok, 'failed', lost)
  end
  if digests then
    reuse.settle_digests(job, owner, digests, first, succeeded + failed, blob, ttl, commit and commit.cache)
  end
  return true
end

-- End a job as canceled or expired: what is answered stays, the rest never reaches a model.
function jobs.cut_short(job, status, ttl)
  local key = keys.job(job)
  local left, version = unpack(call('HMGET', key, 'left', 'version'))
  count_items(version, '|' .. status, tonumber(left))
  call('HSET', key, status, left, 'left', 0)
  finish(job, status, ttl)
  reuse.release_led(job, 0)
end

-- Note that a job's items stand in a file, from which the keeper feeds them. Files in the storage of files have a list of
-- their own: a keeper of an earlier version would not find them.
function jobs.add_file(job, file, tokens, now)
  call('HSET', keys.job(job), 'file', file, 'file_tokens', tokens, 'fed', 0, 'fed_bytes', 0, 'fed_tokens', 0)
  add(keys.UNFED, jobs.unfed(job))
  call('ZADD', string.sub(file, 1, 6) == 'items/' and keys.STORED_FEEDS or keys.FEEDS, now, job)
end

-- Of the refs of a job that is submitted, those that wait for a core: the others are answered, or follow an equal item.
local function spare_refs(job, texts, ask)
  local left, status = {}, 'queued'
  for _, text in ipairs(texts) do
    local ref = parse(text)
    local digest, kept, leader
    if ref.count == '1' then
      digest = reuse.digest_at(ask.digests, ref.first)
      kept, leader = reuse.find_known(ref, digest, ask.cache)
    end
    if kept or leader then
      jobs.begin_job(job, status, ref.priority, ask.ttl)
      status = 'running'
    end
    if not ((kept or leader) and reuse.spare_item(ref, text, digest, ask.ttl, kept, leader)) then left[#left + 1] = text end
  end
  return left
end

-- Take the payloads that stand behind the refs of a call out of its arguments, and keep them by their first items.
local function keep_payloads(job, firsts, args)
  local before = #args - #firsts
  for i, first in ipairs(firsts) do
    call('HSET', keys.payloads(job), first, args[before + i])
    args[before + i] = nil
  end
end

-- submit{job, version, envelope, submit_us, expires_in_ms, file, file_tokens, once, fingerprint, once_ttl_s, input, fields,
--   digests, is_cut, owner, priority, cache, ttl, stored, is_retry, firsts}, ref…, payload…
--   → {1 if new, created_ms, expires_ms or nil, 1 if it is final already}, {-1, `JOB FINGERPRINT` of the holder of `once`},
--   {-2, indexes of items}, or {-3, digests of stored contexts that are not there…}
-- The job, its refs in the lanes and the bells, in one step. The payloads come with it if they are few: `firsts` are their
-- first items. Or they were written just before, or stand in a file from which the keeper feeds them. A version that was
-- closed since the job was admitted takes it no more. `once` is a key that one job may hold: for `once_ttl_s`, or with 0
-- for as long as the job is kept. `fields`: names and values in turn. With `input` its items are at a URL, and are read
-- from there before anything else. `digests` are those of its items. If some are answered or computed already (-2), nothing
-- is written: the job is submitted again with a ref for each of these items alone, and `is_cut`. `stored` are the digests
-- of its owner's stored contexts that its items name.
define('submit', function(ask, args)
  local job, once, key, now = ask.job, ask.once, keys.job(ask.job), now_ms()
  if call('EXISTS', key) == 1 then return { 0, unpack(call('HMGET', key, 'created_ms', 'expires_ms')) } end
  local holder = once and call('GET', once)
  if holder and (ask.once_ttl_s > 0 or call('EXISTS', keys.job(string.match(holder, '^%S+'))) == 1) then
    return { -1, holder }
  end
  if call('HEXISTS', keys.CLOSED, ask.version) == 1 then
    return redis.error_reply('VERSIONCLOSED ' .. ask.version .. ' takes no more jobs')
  end
  if ask.digests and not ask.is_cut then
    local known = reuse.find_all_known(ask.owner, ask.priority, ask.digests, ask.cache)
    if #known > 0 then return { -2, known } end
  end
  if ask.stored then
    local missing = contexts.use(ask.owner, ask.stored, job, ask.is_retry)
    if #missing > 0 then return { -3, unpack(missing) } end
  end
  if ask.firsts then
    keep_payloads(job, ask.firsts, args)
  else
    if not ask.file and not ask.input and call('PERSIST', keys.payloads(job)) == 0 then
      return redis.error_reply('PAYLOADGONE the payloads of this job expired before it was submitted')
    end
    call('PERSIST', keys.contexts(job))
  end
  call('HSET', key, 'status', 'queued', 'version', ask.version, 'created_ms', now,
    'succeeded', 0, 'failed', 0, 'canceled', 0, 'expired', 0, 'times', timing.new_times(ask.submit_us), unpack(ask.fields))
  local owner, priority, total, labels = unpack(call('HMGET', key, 'owner', 'priority', 'total', 'labels'))
  call('ZADD', keys.owner_jobs(owner), 0, job)
  index.open(owner, job, labels)
  if once then
    call('SET', once, job .. ' ' .. ask.fingerprint)
    if ask.once_ttl_s > 0 then call('EXPIRE', once, ask.once_ttl_s) else call('HSET', key, 'once', once) end
  end
  local expires_ms = ask.expires_in_ms > 0 and now + ask.expires_in_ms
  if expires_ms then
    call('HSET', key, 'expires_ms', expires_ms)
    call('ZADD', keys.EXPIRING, expires_ms, job)
  end
  if ask.file then jobs.add_file(job, ask.file, ask.file_tokens, now) end
  if ask.input then call('ZADD', keys.READING, now, job) end
  call('HINCRBY', keys.JOB_COUNTS, ask.version, 1)
  count('corelane_jobs_submitted_total|', ask.version, 1)
  count('corelane_items_submitted_total|', ask.version, tonumber(total))
  call('SADD', keys.open_jobs(priority), job)
  table.remove(args, 1)
  local refs = args
  if ask.digests then refs = spare_refs(job, args, ask) end
  enqueue(ask.version, refs, ask.envelope, false)
  return { 1, now, expires_ms, #refs == 0 and not job_is_open(job) and 1 or 0 }
end)

-- feed{job, fed, fed_after, bytes_after, tokens_after, envelope, failed: [[first, results, count]…], ttl}, ref…
--   → 1 if fed, 0 if another was first, -1 if final
-- The next slices of a job whose items stand in a file; their payloads were written just before. `failed` are lines that are
-- no items: they fail at once.
define('feed', function(ask, args)
  local job, key = ask.job, keys.job(ask.job)
  local status, version, fed = unpack(call('HMGET', key, 'status', 'version', 'fed'))
  if not is_open(status) then return -1 end
  if tonumber(fed) ~= ask.fed then return 0 end
  local account, before = jobs.unfed(job)
  call('HSET', key, 'fed', ask.fed_after, 'fed_bytes', ask.bytes_after, 'fed_tokens', ask.tokens_after)
  local _, left = jobs.unfed(job)
  add(keys.UNFED, account, left - before)
  table.remove(args, 1)
  enqueue(version, args, ask.envelope, false)
  for _, bad in ipairs(ask.failed or {}) do jobs.answer(job, bad[1], bad[2], 0, bad[3], ask.ttl) end
  return 1
end)

-- fail{job, ttl, error} → 1 if it failed now: what is answered stays, the rest fails for one reason, as JSON
define('fail', function(ask)
  local key = keys.job(ask.job)
  local status, left, ok, version = unpack(call('HMGET', key, 'status', 'left', 'succeeded', 'version'))
  if not is_open(status) then return 0 end
  count_items(version, '|failed', tonumber(left))
  call('HINCRBY', key, 'failed', left)
  call('HSET', key, 'left', 0, 'error', ask.error)
  finish(ask.job, tonumber(ok) > 0 and 'succeeded' or 'failed', ask.ttl)
  return 1
end, 'allow-oom')

-- cancel{job, ttl} → 1 if canceled now, 0 if it was final already, -1 if there is no such job
define('cancel', function(ask)
  local status = call('HGET', keys.job(ask.job), 'status')
  if not status then return -1 end
  if not is_open(status) then return 0 end
  jobs.cut_short(ask.job, 'canceled', ask.ttl)
  return 1
end, 'allow-oom')

-- delete{job, ttl} → 1 if deleted, 0 if there is no such job
-- Cancels it first if it is open, so that all who wait hear of it; then nothing is left of it. Refs of it that still wait
-- are passed over like those of any final job; its file, if it has one, is removed by the feeder.
define('delete', function(ask)
  local job, key = ask.job, keys.job(ask.job)
  local status, owner, once, file, stored = unpack(call('HMGET', key, 'status', 'owner', 'once', 'file', 'stored'))
  if not status then return 0 end
  if is_open(status) then jobs.cut_short(job, 'canceled', ask.ttl) end
  if stored then contexts.leave(job, owner, stored) end
  if once and string.match(call('GET', once) or '', '^%S+') == job then call('DEL', once) end
  if file then call('ZADD', keys.FEEDS, now_ms(), job) end
  index.unlist(owner, job)
  call('ZREM', keys.KEEPING, owner .. ':' .. job .. (file and ':file' or ''))
  deliveries.forget(job)
  call('UNLINK', key, keys.payloads(job), keys.contexts(job), keys.results(job), keys.dropped(job), keys.failures(job),
    keys.job_events(job))
  return 1
end, 'allow-oom')

-- drop{job, before, firsts, failed} → index of the first result kept; 0 if there is no such job
-- Forgets results that the caller has: all before an index, which are the stretches with these first items. Of the items
-- with the indexes in `failed` it is remembered that they failed, for a retry. Results that still have to be written to a
-- URL stay.
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
end, 'allow-oom')
