-- claim, in the place of the product's and called as it is; `document` and `laden` mean nothing here.
-- Within a priority the owner who was served the fewest tokens by this core goes first; within an owner the oldest. A core
-- without work of its own takes half of the longest lane it can serve. For the rest see the product's.
local core, budget, max_refs = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local lease_ms, linger, idle, ttl = tonumber(ARGV[6]), ARGV[7], ARGV[8] == '1', tonumber(ARGV[9])
local FIRST_VERSION, SMALL_PAYLOAD_BYTES = 10, 2048
local now, tokens, taken, held, alone = now_ms(), 0, {}, {}, false
redis.call('HSET', 'cl:claimed', core, now)

-- Tokens taken; none for a ref whose job wants no answer any more.
local function take(text, ref, version)
  local status, expires, options = unpack(redis.call('HMGET', job_key(ref.job), 'status', 'expires_ms', 'options'))
  if is_open(status) and expires and tonumber(expires) <= now then
    expire(ref.job, ttl)
    status = 'expired'
  end
  if not is_open(status) then
    charge('cl:held', core, ref, -ref.tokens)
    return 0
  end
  if status == 'queued' then redis.call('HSET', job_key(ref.job), 'status', 'running', 'started_ms', now) end
  tokens, alone = tokens + ref.tokens, ref.attempt > 1
  local small = redis.call('HSTRLEN', in_key(ref.job), ref.payload) <= SMALL_PAYLOAD_BYTES
  local at = #taken
  taken[at + 1], taken[at + 2] = text, version
  taken[at + 3], taken[at + 4] = small and redis.call('HGET', in_key(ref.job), ref.payload) or '', options
  held[#held + 1], held[#held + 2] = ref.job .. ':' .. ref.first, text
  return ref.tokens
end

-- The front of an owner's first lane that has one; lanes found empty are struck off.
local function front(owner, priority)
  for v = FIRST_VERSION, #ARGV do
    local lane = lane_name(core, ARGV[v], priority, owner)
    local text = redis.call('LINDEX', 'cl:lane:' .. lane, 0)
    if text then return text, ARGV[v], lane end
    redis.call('SREM', 'cl:lanes', lane)
  end
end

local function take_from(priority)
  local shares, skipped = 'cl:shares:' .. core .. ':' .. priority, 0
  while not alone and tokens < budget and #held < 2 * max_refs do
    local owner = redis.call('ZRANGE', shares, skipped, skipped)[1]
    if not owner then return end
    local text, version, lane = front(owner, priority)
    if not text then
      redis.call('ZREM', shares, owner)
    else
      local ref = parse(text)
      if ref.attempt > 1 and (#taken > 0 or not idle) then
        skipped = skipped + 1
      else
        redis.call('LPOP', 'cl:lane:' .. lane)
        redis.call('ZINCRBY', shares, take(text, ref, version), owner)
      end
    end
  end
end

local function take_all()
  local from, to, step = 0, 2, 1
  if redis.call('HINCRBY', 'cl:turns', core, 1) % 8 == 0 then from, to, step = 2, 0, -1 end
  for priority = from, to, step do take_from(priority) end
end

local function steal()
  local mine, longest, victim = {}, 0, nil
  for v = FIRST_VERSION, #ARGV do mine[ARGV[v]] = true end
  for _, lane in ipairs(redis.call('SMEMBERS', 'cl:lanes')) do
    local other, version = parse_lane(lane)
    if other ~= core and mine[version] then
      local length = redis.call('LLEN', 'cl:lane:' .. lane)
      if length > longest then longest, victim = length, lane end
    end
  end
  if not victim then return false end
  local other, version = parse_lane(victim)
  local half = math.min(math.ceil(longest / 2), 1000)
  local refs = redis.call('LRANGE', 'cl:lane:' .. victim, -half, -1)
  redis.call('LTRIM', 'cl:lane:' .. victim, 0, -half - 1)
  for _, text in ipairs(refs) do
    local ref = parse(text)
    charge('cl:held', other, ref, -ref.tokens)
  end
  put(core, version, refs, nil, false)
  return true
end

take_all()
if #taken == 0 and idle and steals and steal() then take_all() end
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
