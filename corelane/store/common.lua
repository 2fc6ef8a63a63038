-- Shared by every script: times, parsing, accounts, routing, bells and the end of a job.
local function now_ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

local function job_key(job) return 'cl:job:{' .. job .. '}' end
local function in_key(job) return 'cl:in:{' .. job .. '}' end
local function contexts_key(job) return 'cl:contexts:{' .. job .. '}' end
local function out_key(job) return 'cl:out:{' .. job .. '}' end

-- job:owner:priority:payload:first:count:tokens:attempt
local function parse(ref)
  local job, owner, priority, payload, first, tokens, attempt =
    string.match(ref, '^([^:]+):([^:]+):(%d):(%d+):(%d+):%d+:(%d+):(%d+)$')
  return {
    job = job, owner = owner, priority = priority, payload = payload, first = first,
    tokens = tonumber(tokens), attempt = tonumber(attempt),
  }
end

local function is_open(status) return status == 'queued' or status == 'running' end

-- CORE:VERSION:P:OWNER, as in the names of lanes.
local function parse_lane(lane) return string.match(lane, '^([^:]+):(.+):(%d):([^:]+)$') end
local function lane_name(core, version, priority, owner)
  return core .. ':' .. version .. ':' .. priority .. ':' .. owner
end

local function add(key, field, amount)
  if redis.call('HINCRBY', key, field, amount) == 0 then redis.call('HDEL', key, field) end
end

-- Tokens come to wait at a place (a core, or `orphans`) on an owner's account, or, if negative, leave it.
local function charge(place, ref, amount)
  add('cl:tokens', place, amount)
  add('cl:owed', ref.owner .. ':' .. ref.priority, amount)
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
local function join_shares(core, priority, owner)
  local shares = 'cl:shares:' .. core .. ':' .. priority
  if redis.call('ZSCORE', shares, owner) then return end
  local least = redis.call('ZRANGE', shares, 0, 0, 'WITHSCORES')
  redis.call('ZADD', shares, least[2] and least[2] - 1 or 0, owner)
end

-- Put refs into the lanes of one core, at the front where they waited longest, and ring it.
local function enqueue(core, version, refs, envelope, to_front)
  local push, from, to, step, known = to_front and 'LPUSH' or 'RPUSH', 1, #refs, 1, {}
  if to_front then from, to, step = #refs, 1, -1 end
  for r = from, to, step do
    local ref = parse(refs[r])
    local lane = lane_name(core, version, ref.priority, ref.owner)
    charge(core, ref, ref.tokens)
    redis.call(push, 'cl:lane:' .. lane, refs[r])
    if not known[lane] then
      known[lane] = true
      redis.call('SADD', 'cl:lanes', lane)
      join_shares(core, ref.priority, ref.owner)
    end
  end
  if envelope then ring(core, envelope) end
end

-- Each ref to the core with the fewest outstanding tokens among those that hold the version; without any, to the orphans.
local function route(version, refs, envelope, to_front)
  if #refs == 0 then return end
  local cores = redis.call('ZRANGEBYSCORE', 'cl:holders:' .. version, now_ms(), '+inf')
  if #cores == 0 then
    redis.call('SADD', 'cl:orphaned', version)
    for _, text in ipairs(refs) do
      local ref = parse(text)
      charge('orphans', ref, ref.tokens)
      redis.call('RPUSH', 'cl:orphans:' .. version, text)
    end
    return
  end
  table.sort(cores)
  local load, chosen = {}, {}
  for i, count in ipairs(redis.call('HMGET', 'cl:tokens', unpack(cores))) do
    load[i], chosen[i] = tonumber(count or 0), {}
  end
  for _, text in ipairs(refs) do
    local best = 1
    for i = 2, #cores do
      if load[i] < load[best] then best = i end
    end
    load[best] = load[best] + parse(text).tokens
    table.insert(chosen[best], text)
  end
  for i, core in ipairs(cores) do
    if #chosen[i] > 0 then enqueue(core, version, chosen[i], envelope, to_front) end
  end
end

-- Tokens of a job that stand in its file still.
local function unfed(job)
  local key = job_key(job)
  local owner, priority, tokens, fed = unpack(redis.call('HMGET', key, 'owner', 'priority', 'file_tokens', 'fed_tokens'))
  return owner .. ':' .. priority, tonumber(tokens) - tonumber(fed)
end

-- A job's one and only end: status, event, webhook, and the wake-up of whoever waits. Callers check that it is open.
local function finish(job, status, ttl)
  local key, now = job_key(job), now_ms()
  local url, priority, file = unpack(redis.call('HMGET', key, 'webhook_url', 'priority', 'file'))
  redis.call('HSET', key, 'status', status, 'finished_ms', now)
  redis.call('EXPIRE', key, ttl)
  redis.call('EXPIRE', out_key(job), ttl)
  redis.call('UNLINK', contexts_key(job))
  if status == 'succeeded' or status == 'failed' then
    redis.call('UNLINK', in_key(job))
  else
    redis.call('EXPIRE', in_key(job), ttl)
  end
  if file then
    local account, tokens = unfed(job)
    if tokens ~= 0 then add('cl:unfed', account, -tokens) end
  end
  redis.call('ZREM', 'cl:expiring', job)
  redis.call('SREM', 'cl:open:' .. (priority or '1'), job)
  redis.call('XADD', 'cl:events', 'MAXLEN', '~', 10000, '*', 'job', job, 'status', status)
  if url then
    local id = 'evt_' .. string.sub(job, 5)
    redis.call('HSET', 'cl:delivery:' .. id, 'job', job, 'url', url, 'event', 'job.completed', 'at_ms', now, 'attempts', 0)
    redis.call('EXPIRE', 'cl:delivery:' .. id, ttl)
    redis.call('ZADD', 'cl:due', now, id)
  end
  redis.call('PUBLISH', 'cl:done', job)
end

-- Results of one stretch of work, if its job still wants them (true); finishes the job when they are the last.
local function answer(job, first, blob, succeeded, failed, ttl)
  local key = job_key(job)
  if not is_open(redis.call('HGET', key, 'status')) then return false end
  if redis.call('HSETNX', out_key(job), first, blob) == 0 then return false end
  local ok = redis.call('HINCRBY', key, 'succeeded', succeeded)
  redis.call('HINCRBY', key, 'failed', failed)
  if redis.call('HINCRBY', key, 'left', -(succeeded + failed)) == 0 then
    finish(job, ok > 0 and 'succeeded' or 'failed', ttl)
  end
  return true
end

-- Ends a job whose time is over: what is answered stays, the rest never reaches a model.
local function expire(job, ttl)
  local key = job_key(job)
  redis.call('HSET', key, 'expired', redis.call('HGET', key, 'left'), 'left', 0)
  finish(job, 'expired', ttl)
end

