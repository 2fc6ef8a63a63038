-- Shared by every script: times, parsing, routing, bells and the end of a job.
local function now_ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

local function job_key(job) return 'cl:job:{' .. job .. '}' end
local function in_key(job) return 'cl:in:{' .. job .. '}' end
local function out_key(job) return 'cl:out:{' .. job .. '}' end

-- job:slice:offset:first:count:tokens:attempt
local function parse(ref)
  local job, first, tokens, attempt = string.match(ref, '^([^:]+):%d+:%d+:(%d+):%d+:(%d+):(%d+)$')
  return job, first, tonumber(tokens), tonumber(attempt)
end

local function is_open(status) return status == 'queued' or status == 'running' end

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

-- The priority of a ref's job: 0 high, 1 normal, 2 low.
local function priority_of(ref, known)
  local job = parse(ref)
  if not known[job] then known[job] = redis.call('HGET', job_key(job), 'priority') or '1' end
  return known[job]
end

local function lane_key(core, version, priority) return 'cl:lane:' .. core .. ':' .. version .. ':' .. priority end

-- Put refs into the lanes of one core, at the front where they waited longest, and ring it.
local function enqueue(core, version, refs, envelope, to_front, priorities)
  local tokens, push = 0, to_front and 'LPUSH' or 'RPUSH'
  local from, to, step = 1, #refs, 1
  if to_front then from, to, step = #refs, 1, -1 end
  for r = from, to, step do
    local _, _, cost = parse(refs[r])
    local priority = priority_of(refs[r], priorities)
    tokens = tokens + cost
    redis.call(push, lane_key(core, version, priority), refs[r])
    redis.call('SADD', 'cl:lanes', core .. ':' .. version .. ':' .. priority)
  end
  redis.call('HINCRBY', 'cl:tokens', core, tokens)
  if envelope then ring(core, envelope) end
end

-- Each ref to the core with the fewest outstanding tokens among those that hold the version; without any, to the orphans.
local function route(version, refs, envelope, to_front)
  if #refs == 0 then return end
  local cores = redis.call('ZRANGEBYSCORE', 'cl:holders:' .. version, now_ms(), '+inf')
  if #cores == 0 then
    local tokens = 0
    redis.call('SADD', 'cl:orphaned', version)
    for _, ref in ipairs(refs) do
      local _, _, cost = parse(ref)
      tokens = tokens + cost
      redis.call('RPUSH', 'cl:orphans:' .. version, ref)
    end
    redis.call('HINCRBY', 'cl:tokens', 'orphans', tokens)
    return
  end
  table.sort(cores)
  local load, chosen, priorities = {}, {}, {}
  for i, count in ipairs(redis.call('HMGET', 'cl:tokens', unpack(cores))) do
    load[i], chosen[i] = tonumber(count or 0), {}
  end
  for _, ref in ipairs(refs) do
    local _, _, cost = parse(ref)
    local best = 1
    for i = 2, #cores do
      if load[i] < load[best] then best = i end
    end
    load[best] = load[best] + cost
    table.insert(chosen[best], ref)
  end
  for i, core in ipairs(cores) do
    if #chosen[i] > 0 then enqueue(core, version, chosen[i], envelope, to_front, priorities) end
  end
end

-- A job's one and only end: status, event, webhook, and the wake-up of whoever waits. Callers check that it is open.
local function finish(job, status, ttl)
  local key, now = job_key(job), now_ms()
  redis.call('HSET', key, 'status', status, 'finished_ms', now)
  redis.call('EXPIRE', key, ttl)
  redis.call('EXPIRE', out_key(job), ttl)
  if status == 'succeeded' or status == 'failed' then
    redis.call('UNLINK', in_key(job))
  else
    redis.call('EXPIRE', in_key(job), ttl)
  end
  redis.call('ZREM', 'cl:expiring', job)
  redis.call('XADD', 'cl:events', 'MAXLEN', '~', 10000, '*', 'job', job, 'status', status)
  local url = redis.call('HGET', key, 'webhook_url')
  if url then
    local id = 'evt_' .. string.sub(job, 5)
    redis.call('HSET', 'cl:delivery:' .. id, 'job', job, 'url', url, 'event', 'job.completed', 'at_ms', now, 'attempts', 0)
    redis.call('EXPIRE', 'cl:delivery:' .. id, ttl)
    redis.call('ZADD', 'cl:due', now, id)
  end
  redis.call('PUBLISH', 'cl:done', job)
end

-- Results of one stretch of work, if its job still wants them; finishes the job when they are the last.
local function answer(job, first, blob, succeeded, failed, ttl)
  local key = job_key(job)
  if not is_open(redis.call('HGET', key, 'status')) then return end
  if redis.call('HSETNX', out_key(job), first, blob) == 0 then return end
  local ok = redis.call('HINCRBY', key, 'succeeded', succeeded)
  redis.call('HINCRBY', key, 'failed', failed)
  if redis.call('HINCRBY', key, 'left', -(succeeded + failed)) == 0 then
    finish(job, ok > 0 and 'succeeded' or 'failed', ttl)
  end
end

-- Ends a job whose time is over: what is answered stays, the rest never reaches a model.
local function expire(job, ttl)
  local key = job_key(job)
  redis.call('HSET', key, 'expired', redis.call('HGET', key, 'left'), 'left', 0)
  finish(job, 'expired', ttl)
end

