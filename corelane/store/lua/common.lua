-- Shared by every script: times, parsing, accounts, routing, bells, stories and the end of a job.
local clock
local function now_ms()
  if not clock then
    local t = redis.call('TIME')
    clock = t[1] * 1000 + math.floor(t[2] / 1000)
  end
  return clock
end

local function job_key(job) return 'cl:job:{' .. job .. '}' end
local function in_key(job) return 'cl:in:{' .. job .. '}' end
local function contexts_key(job) return 'cl:contexts:{' .. job .. '}' end
local function story_key(job) return 'cl:story:{' .. job .. '}' end
local function out_key(job) return 'cl:out:{' .. job .. '}' end
local function dropped_key(job) return 'cl:dropped:{' .. job .. '}' end

-- job:owner:priority:payload:first:count:tokens:attempt; nil for a text that is no ref, or one that no process of ours writes
local MOST_DIGITS, MOST_REF_ITEMS = 12, 1000
local function parse(ref)
  local job, owner, priority, payload, first, count, tokens, attempt =
    string.match(ref, '^([^:]+):([^:]+):([012]):(%d+):(%d+):(%d+):(%d+):(%d+)$')
  if not job or math.max(#payload, #first, #count, #tokens, #attempt) > MOST_DIGITS then return nil end
  if tonumber(count) > MOST_REF_ITEMS or tonumber(first) < tonumber(payload) then return nil end
  return {
    job = job, owner = owner, priority = priority, payload = payload, first = first, count = count,
    tokens = tonumber(tokens), attempt = tonumber(attempt),
  }
end

-- Throw away a text that stands where refs do and is none: kept, it would stop every claim.
local function drop_forged(list, text)
  redis.call('LREM', list, 1, text)
  redis.log(redis.LOG_WARNING, 'Corelane: dropped from ' .. list .. ' what is no ref: ' .. string.sub(text, 1, 100))
end

local function is_open(status) return status == 'queued' or status == 'running' end

local function lane_key(version, priority, owner)
  return 'cl:lane:' .. version .. ':' .. priority .. ':' .. owner
end

local function line_key(version, priority, owner)
  return 'cl:line:' .. version .. ':' .. priority .. ':' .. owner
end

local function refs_key(job) return 'cl:refs:{' .. job .. '}' end

-- In a line, all small jobs of the owner together. Sorts before every job. In a set of lanes, what marks a line.
local SMALL_JOBS, LINE_MARK = '-', '+'

local function add(key, field, amount)
  if redis.call('HINCRBY', key, field, amount) == 0 then redis.call('HDEL', key, field) end
end

-- Tokens come to wait for a version (cl:waiting), or to be held by a core (cl:held), on an owner's account; or leave it.
local function charge(where, place, ref, amount)
  add(where, place, amount)
  add('cl:owed', ref.owner .. ':' .. ref.priority, amount)
end

-- A stretch in progress costs more, or less, than its owner's share was charged when it was claimed; so does its job among
-- the larger jobs of the owner, if it has rivals.
local function charge_share(ref, more)
  if more == 0 then return end
  local shares, version = 'cl:shares:' .. ref.priority, redis.call('HGET', job_key(ref.job), 'version')
  if redis.call('ZSCORE', shares, ref.owner) then redis.call('ZINCRBY', shares, more, ref.owner) end
  local line = version and line_key(version, ref.priority, ref.owner)
  if line and redis.call('ZSCORE', line, ref.job) and redis.call('ZCARD', line) > 1 then
    redis.call('ZINCRBY', line, more, ref.job)
  end
end

-- Take a stretch out of a claim, with what it is charged there, which may have been corrected since its ref was read.
-- → its tokens there, nil if the claim holds it no more
local function release_stretch(claim, core, ref)
  local name = ref.job .. ':' .. ref.first
  local held = redis.call('HGET', claim, name)
  if not held then return nil end
  redis.call('HDEL', claim, name)
  local tokens = parse(held).tokens
  charge('cl:held', core, ref, -tokens)
  return tokens
end

-- Wake a core: a push where its drain lingers, a Celery message where it sleeps, nothing where it is rung already.
local function ring(core, envelope)
  local bell = 'cl:bell:' .. core
  local state = redis.call('GET', bell)
  if state == 'r' then return end
  redis.call('SET', bell, 'r', 'EX', 30)
  if state == 'l' then
    redis.call('RPUSH', 'cl:wake:' .. core, 1)
    redis.call('EXPIRE', 'cl:wake:' .. core, 30)
    return
  end
  local queue = 'core.' .. string.gsub(core, '/', '.')
  local id = 'bell-' .. queue .. '-' .. redis.call('INCR', 'cl:seq')
  local message = string.gsub(string.gsub(envelope, 'BELLID', id), 'BELLQUEUE', queue)
  redis.call('LPUSH', queue, message)
end

-- An owner whose lanes were empty starts level with the one served least so far, and goes before it once.
local function join_shares(owner, priority)
  local shares = 'cl:shares:' .. priority
  if redis.call('ZSCORE', shares, owner) then return end
  local least = redis.call('ZRANGE', shares, 0, 0, 'WITHSCORES')
  redis.call('ZADD', shares, least[2] and least[2] - 1 or 0, owner)
end

-- A larger job whose refs begin to wait starts level with the one of its owner that was served least. Jobs that are level
-- go in the order they came, which is the order of their ids.
local function join_line(version, ref)
  local line = line_key(version, ref.priority, ref.owner)
  if redis.call('ZSCORE', line, ref.job) then return end
  local least = redis.call('ZRANGE', line, 0, 1, 'WITHSCORES')
  redis.call('ZADD', line, least[least[1] == SMALL_JOBS and 4 or 2] or 0, ref.job)
end

-- Strike off an owner's lane or line that is empty, and the owner where none is left.
local function strike_off(name, priority, owner)
  local lanes = 'cl:lanes:' .. priority .. ':' .. owner
  redis.call('SREM', lanes, name)
  if redis.call('EXISTS', lanes) == 0 then redis.call('ZREM', 'cl:shares:' .. priority, owner) end
end

-- A job is out of its line; so are the small ones when no larger job is left to compete with.
local function leave_line(line, job, version, priority, owner)
  redis.call('ZREM', line, job)
  local left = redis.call('ZRANGE', line, 0, 1)
  if #left == 0 or (#left == 1 and left[1] == SMALL_JOBS) then
    redis.call('DEL', line)
    strike_off(LINE_MARK .. version, priority, owner)
  end
end

-- A small job is one slice that a batch can hold. A feed's last slice is none: its job has more items.
local function is_small(refs)
  if #refs > 1 then return false end
  local ref = parse(refs[1])
  return ref.tokens <= SMALL_TOKENS and redis.call('HGET', job_key(ref.job), 'total') == ref.count
end

-- Ring cores that hold a version and are not rung yet, the least laden first; at most so many.
local function ring_some(version, most, envelope)
  local cores = redis.call('ZRANGEBYSCORE', 'cl:holders:' .. version, now_ms(), '+inf')
  if #cores == 0 then return end
  local held = {}
  for i, tokens in ipairs(redis.call('HMGET', 'cl:held', unpack(cores))) do held[cores[i]] = tonumber(tokens or 0) end
  table.sort(cores, function(a, b)
    if held[a] ~= held[b] then return held[a] < held[b] end
    return a < b
  end)
  for _, core in ipairs(cores) do
    if most == 0 then return end
    if redis.call('GET', 'cl:bell:' .. core) ~= 'r' then
      ring(core, envelope)
      most = most - 1
    end
  end
end

-- Put refs of one job where they wait for its version, at the front where they waited longest, and ring for them. Those
-- that were claimed and lost before wait apart, a small job in its owner's lane, a larger one in a list of its own.
local function enqueue(version, refs, envelope, to_front)
  if #refs == 0 then return end
  local push, from, to, step = to_front and 'LPUSH' or 'RPUSH', 1, #refs, 1
  if to_front then from, to, step = #refs, 1, -1 end
  local head = parse(refs[1])
  local small, place = head.attempt == 1 and is_small(refs), 'cl:returned:' .. version
  if head.attempt == 1 then
    place = small and lane_key(version, head.priority, head.owner) or refs_key(head.job)
  end
  for r = from, to, step do
    local ref = parse(refs[r])
    charge('cl:waiting', version, ref, ref.tokens)
    redis.call(push, place, refs[r])
  end
  if head.attempt == 1 then
    redis.call('SADD', 'cl:lanes:' .. head.priority .. ':' .. head.owner, small and version or LINE_MARK .. version)
    join_shares(head.owner, head.priority)
    if not small then join_line(version, head) end
  end
  ring_some(version, #refs, envelope)
end

-- A job tells how far it has come at most so often, in milliseconds, and keeps about so many of its last events.
local PROGRESS_MS, STORY_EVENTS = 500, 1000

-- One more event of a job's story; its id, a time, but greater than those before it even if the clock was set back. A
-- story is begun when there is something to tell between beginning and end, which the job's hash has: a stream takes 4 kB.
local function tell(job, event, ...)
  if redis.call('EXISTS', story_key(job)) == 0 then
    local started = redis.call('HGET', job_key(job), 'started_ms')
    redis.call('XADD', story_key(job), started .. '-0', 'event', 'job.running')
  end
  return redis.call('XADD', story_key(job), 'MAXLEN', '~', STORY_EVENTS, '*', 'event', event, ...)
end

-- Tokens of a job that stand in its file still.
local function unfed(job)
  local key = job_key(job)
  local owner, priority, tokens, fed = unpack(redis.call('HMGET', key, 'owner', 'priority', 'file_tokens', 'fed_tokens'))
  return owner .. ':' .. priority, tonumber(tokens) - tonumber(fed)
end

-- What a final job leaves, and for how long: items and contexts only while a retry could ask for some of
-- them again. Items in a file stay there; the feeder sees to the file. The keeper clears up after the job (cl:keeping).
-- → the seconds it is kept for
local function retain(job, status, ttl, now)
  local key = job_key(job)
  local keep_s, owner, once, file, failed = unpack(redis.call('HMGET', key, 'keep_s', 'owner', 'once', 'file', 'failed'))
  ttl = math.min(tonumber(keep_s) or ttl, ttl)
  redis.call('HSET', key, 'kept_until_ms', now + ttl * 1000)
  redis.call('EXPIRE', key, ttl)
  redis.call('EXPIRE', out_key(job), ttl)
  redis.call('EXPIRE', dropped_key(job), ttl)
  if once then redis.call('EXPIRE', once, ttl) end
  local kept, gone = { contexts_key(job) }, {}
  if status == 'canceled' or status == 'expired' or not file then
    kept[2] = in_key(job)
  else
    gone[1] = in_key(job)
  end
  if status == 'succeeded' and tonumber(failed) == 0 then kept, gone = {}, { in_key(job), contexts_key(job) } end
  for _, each in ipairs(kept) do redis.call('EXPIRE', each, ttl) end
  for _, each in ipairs(gone) do redis.call('UNLINK', each) end
  if file then redis.call('ZADD', 'cl:feeds', now, job) end
  redis.call('ZADD', 'cl:keeping', now + ttl * 1000, owner .. ':' .. job .. (file and ':file' or ''))
  return ttl
end

-- Refs of a larger job that wait when it ends need no core any more: their tokens wait for nobody.
local function drop_refs(job, version)
  local refs, last = redis.call('LRANGE', refs_key(job), 0, -1), nil
  for _, text in ipairs(refs) do
    local ref = parse(text)
    if ref then
      charge('cl:waiting', version, ref, -ref.tokens)
      last = ref
    end
  end
  redis.call('DEL', refs_key(job))
  if last then leave_line(line_key(version, last.priority, last.owner), job, version, last.priority, last.owner) end
end

-- A job's one and only end: status, event, webhook, and the wake-up of whoever waits. Callers check that it is open.
local function finish(job, status, ttl)
  local key, now = job_key(job), now_ms()
  local priority, file, version = unpack(redis.call('HMGET', key, 'priority', 'file', 'version'))
  redis.call('HSET', key, 'status', status, 'finished_ms', now)
  drop_refs(job, version)
  ttl = retain(job, status, ttl, now)
  if file then
    local account, tokens = unfed(job)
    if tokens ~= 0 then add('cl:unfed', account, -tokens) end
  end
  add('cl:jobs', version, -1)
  redis.call('ZREM', 'cl:expiring', job)
  redis.call('SREM', 'cl:open:' .. (priority or '1'), job)
  redis.call('XADD', 'cl:events', 'MAXLEN', '~', 10000, '*', 'job', job, 'status', status)
  announce_job(key, job, now, ttl, 'job.completed', 'job.' .. status)
  if redis.call('EXISTS', story_key(job)) == 1 then
    redis.call('HSET', key, 'story_end', tell(job, 'job.completed'))
    redis.call('EXPIRE', story_key(job), ttl)
  end
  redis.call('PUBLISH', 'cl:done', job)
end

-- Results of one stretch of work, if its job still wants them (true); finishes the job when they are the last, else tells
-- of the progress if it did not lately (`told_ms`, set when the job began).
local function answer(job, first, blob, succeeded, failed, ttl)
  local key = job_key(job)
  local status, told = unpack(redis.call('HMGET', key, 'status', 'told_ms'))
  if not is_open(status) then return false end
  if redis.call('HSETNX', out_key(job), first, blob) == 0 then return false end
  local ok = redis.call('HINCRBY', key, 'succeeded', succeeded)
  local lost = redis.call('HINCRBY', key, 'failed', failed)
  if redis.call('HINCRBY', key, 'left', -(succeeded + failed)) == 0 then
    finish(job, ok > 0 and 'succeeded' or 'failed', ttl)
  elseif now_ms() - tonumber(told or 0) >= PROGRESS_MS then
    redis.call('HSET', key, 'told_ms', now_ms())
    tell(job, 'job.progress', 'succeeded', ok, 'failed', lost)
  end
  return true
end

-- Ends a job whose time is over: what is answered stays, the rest never reaches a model.
local function expire(job, ttl)
  local key = job_key(job)
  redis.call('HSET', key, 'expired', redis.call('HGET', key, 'left'), 'left', 0)
  finish(job, 'expired', ttl)
end

-- A file that lies in the storage of files is known from now on, and forgotten after its time; the time it was kept.
local function keep_file(file, owner, ttl_ms, fields)
  local now = now_ms()
  redis.call('HSET', 'cl:file:{' .. file .. '}', 'owner', owner, 'created_ms', now, 'expires_ms', now + ttl_ms,
    unpack(fields))
  redis.call('ZADD', 'cl:files:' .. owner, 0, file)
  redis.call('ZADD', 'cl:retiring', now + ttl_ms, file)
  return now
end
