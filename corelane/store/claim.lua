-- claim(core, tokens, refs, lease_ms, linger, idle, ttl, version…) → {lease, ref, version, ref, version, …} or {}
-- High priority first, but every eighth time the lowest, so that nothing starves; oldest first within a lane; up to the
-- token budget, at least one. A ref that has failed before is claimed alone, and only by an idle core. A core without work of its own takes half
-- of the longest lane it can serve. "Nothing there" and "the bell may ring again" are one step, so no wake-up is lost.
local core, budget, max_refs, lease_ms, linger = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local idle, ttl, now, tokens, taken, held, alone = ARGV[6] == '1', tonumber(ARGV[7]), now_ms(), 0, {}, {}, false
redis.call('HSET', 'cl:claimed', core, now)

local function take(ref, version)
  local job, first, cost, attempt = parse(ref)
  local status, expires = unpack(redis.call('HMGET', job_key(job), 'status', 'expires_ms'))
  if is_open(status) and expires and tonumber(expires) <= now then
    expire(job, ttl)
    status = 'expired'
  end
  if not is_open(status) then
    redis.call('HINCRBY', 'cl:tokens', core, -cost)
    return
  end
  if status == 'queued' then redis.call('HSET', job_key(job), 'status', 'running', 'started_ms', now) end
  tokens, alone = tokens + cost, attempt > 1
  taken[#taken + 1], taken[#taken + 2] = ref, version
  held[#held + 1], held[#held + 2] = job .. ':' .. first, ref
end

local function take_from(version, priority)
  local lane = lane_key(core, version, priority)
  while not alone and tokens < budget and #held < 2 * max_refs do
    local ref = redis.call('LINDEX', lane, 0)
    if not ref then return end
    local _, _, _, attempt = parse(ref)
    if attempt > 1 and (#taken > 0 or not idle) then return end
    redis.call('LPOP', lane)
    take(ref, version)
  end
end

local function take_all()
  local turn = redis.call('HINCRBY', 'cl:turns', core, 1)
  local from, to, step = 0, 2, 1
  if turn % 8 == 0 then from, to, step = 2, 0, -1 end
  for priority = from, to, step do
    for v = 8, #ARGV do take_from(ARGV[v], priority) end
  end
end

local function steal()
  local mine, longest, victim = {}, 0, nil
  for v = 8, #ARGV do mine[ARGV[v]] = true end
  for _, lane in ipairs(redis.call('SMEMBERS', 'cl:lanes')) do
    local other, version = string.match(lane, '^([^:]+):(.+):%d$')
    if other ~= core and mine[version] then
      local length = redis.call('LLEN', 'cl:lane:' .. lane)
      if length > longest then longest, victim = length, lane end
    end
  end
  if not victim then return false end
  local other, version = string.match(victim, '^([^:]+):(.+):%d$')
  local half = math.min(math.ceil(longest / 2), 1000)
  local refs, cost = redis.call('LRANGE', 'cl:lane:' .. victim, -half, -1), 0
  redis.call('LTRIM', 'cl:lane:' .. victim, 0, -half - 1)
  for _, ref in ipairs(refs) do
    local _, _, tokens_of_ref = parse(ref)
    cost = cost + tokens_of_ref
  end
  redis.call('HINCRBY', 'cl:tokens', other, -cost)
  enqueue(core, version, refs, nil, false, {})
  return true
end

take_all()
if #taken == 0 and idle and steal() then take_all() end
if #taken == 0 then
  if linger == '1' then
    redis.call('SET', 'cl:bell:' .. core, 'l', 'EX', 5)
  else
    redis.call('DEL', 'cl:bell:' .. core, 'cl:wake:' .. core)
  end
  return {}
end
local lease = core .. '#' .. redis.call('INCR', 'cl:fence')
redis.call('HSET', 'cl:claim:' .. lease, unpack(held))
redis.call('ZADD', 'cl:leases', now + lease_ms, lease)
redis.call('SET', 'cl:bell:' .. core, 'r', 'EX', 30)
table.insert(taken, 1, lease)
return taken
