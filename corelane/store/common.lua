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

local function lane_key(version, priority, owner)
  return 'cl:lane:' .. version .. ':' .. priority .. ':' .. owner
end

local function add(key, field, amount)
  if redis.call('HINCRBY', key, field, amount) == 0 then redis.call('HDEL', key, field) end
end

-- Tokens come to wait for a version (cl:waiting), or to be held by a core (cl:held), on an owner's account; or leave it.
local function charge(where, place, ref, amount)
  add(where, place, amount)
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
local function join_shares(owner, priority)
  local shares = 'cl:shares:' .. priority
  if redis.call('ZSCORE', shares, owner) then return end
  local least = redis.call('ZRANGE', shares, 0, 0, 'WITHSCORES')
  redis.call('ZADD', shares, least[2] and least[2] - 1 or 0, owner)
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

-- Put refs into the lanes of their version, at the front where they waited longest, and ring for them. Those that were
-- claimed and lost before wait apart from the lanes.
local function enqueue(version, refs, envelope, to_front)
  if #refs == 0 then return end
  local push, from, to, step, known = to_front and 'LPUSH' or 'RPUSH', 1, #refs, 1, {}
  if to_front then from, to, step = #refs, 1, -1 end
  for r = from, to, step do
    local ref = parse(refs[r])
    local lane = lane_key(version, ref.priority, ref.owner)
    charge('cl:waiting', version, ref, ref.tokens)
    redis.call(push, ref.attempt > 1 and 'cl:returned:' .. version or lane, refs[r])
    if ref.attempt == 1 and not known[lane] then
      known[lane] = true
      redis.call('SADD', 'cl:lanes:' .. ref.priority .. ':' .. ref.owner, version)
      join_shares(ref.owner, ref.priority)
    end
  end
  ring_some(version, #refs, envelope)
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
  local priority, file, version = unpack(redis.call('HMGET', key, 'priority', 'file', 'version'))
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
  add('cl:jobs', version, -1)
  redis.call('ZREM', 'cl:expiring', job)
  redis.call('SREM', 'cl:open:' .. (priority or '1'), job)
  redis.call('XADD', 'cl:events', 'MAXLEN', '~', 10000, '*', 'job', job, 'status', status)
  announce_job(key, job, 'job.completed', now, ttl)
  announce_job(key, job, 'job.' .. status, now, ttl)
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

