-- claim(core, room, spare, met, refs, document, laden, lease_ms, linger, idle, ttl, version…)
--   → {lease, then per ref: ref, version, payload, options} or {}
-- What was returned from a lost claim goes before all else, alone, to a core with nothing else in progress; others claim
-- nothing until it is gone, so that one is soon idle. Then high priority first, but every eighth time the lowest, so that
-- nothing starves. Within a priority the owner who was served the fewest tokens goes first; within an owner the oldest. Up
-- to `room` tokens, at least one; up to `spare` from an owner and priority of whom this core holds nothing (`met` lists the
-- others, as `,owner:priority,…,`), so that a newcomer waits for no backlog of someone else's. Without room, and no newcomer
-- there, the bell stays as it is. A core that reads a document (more than `document` tokens) is laden: it takes no second
-- one, and holds back for nothing. "Nothing there" and "the bell may ring again" are one step, so no wake-up is
-- lost. Small payloads come along, which saves a lone question a trip; large ones cost more in a script than a trip does.
local core, room, spare, met = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local max_refs, document, laden = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7] == '1'
local lease_ms, linger, idle, ttl = tonumber(ARGV[8]), ARGV[9], ARGV[10] == '1', tonumber(ARGV[11])
local FIRST_VERSION, SMALL_PAYLOAD_BYTES, LOOK_PAST = 12, 2048, 32
local now, tokens, taken, held = now_ms(), 0, {}, {}
redis.call('HSET', 'cl:claimed', core, now)

-- Tokens taken; none for a ref whose job wants no answer any more.
local function take(text, ref, version)
  local status, expires, options = unpack(redis.call('HMGET', job_key(ref.job), 'status', 'expires_ms', 'options'))
  if is_open(status) and expires and tonumber(expires) <= now then
    expire(ref.job, ttl)
    status = 'expired'
  end
  if not is_open(status) then
    charge('cl:waiting', version, ref, -ref.tokens)
    return 0
  end
  if status == 'queued' then
    redis.call('HSET', job_key(ref.job), 'status', 'running', 'started_ms', now, 'told_ms', now)
    announce_job(job_key(ref.job), ref.job, now, ttl, 'job.running')
  end
  add('cl:waiting', version, -ref.tokens)
  add('cl:held', core, ref.tokens)
  tokens = tokens + ref.tokens
  local small = redis.call('HSTRLEN', in_key(ref.job), ref.payload) <= SMALL_PAYLOAD_BYTES
  local at = #taken
  taken[at + 1], taken[at + 2] = text, version
  taken[at + 3], taken[at + 4] = small and redis.call('HGET', in_key(ref.job), ref.payload) or '', options
  held[#held + 1], held[#held + 2] = ref.job .. ':' .. ref.first, text
  return ref.tokens
end

-- One returned ref, if this core may have it; whether it must leave the lanes alone.
local function take_returned()
  if laden then return false end
  for v = FIRST_VERSION, #ARGV do
    local returned = 'cl:returned:' .. ARGV[v]
    while redis.call('EXISTS', returned) == 1 do
      if not idle then return true end
      local text = redis.call('LPOP', returned)
      if take(text, parse(text), ARGV[v]) > 0 then return true end
    end
  end
  return false
end

-- The oldest ref of a lane, or, for a laden core, the oldest that is no document.
local function choose(lane)
  for _, text in ipairs(redis.call('LRANGE', lane, 0, laden and LOOK_PAST or 0)) do
    local ref = parse(text)
    if not (laden and ref.tokens > document) then return text, ref end
  end
end

-- Take a ref out of its lane; a lane that is empty then, and an owner without lanes, are struck off.
local function pop(lane, text, ref, version)
  if redis.call('LINDEX', lane, 0) == text then
    redis.call('LPOP', lane)
  else
    redis.call('LREM', lane, 1, text)
  end
  redis.call('ZINCRBY', 'cl:shares:' .. ref.priority, take(text, ref, version), ref.owner)
  if redis.call('EXISTS', lane) == 1 then return end
  local lanes = 'cl:lanes:' .. ref.priority .. ':' .. ref.owner
  redis.call('SREM', lanes, version)
  if redis.call('EXISTS', lanes) == 0 then redis.call('ZREM', 'cl:shares:' .. ref.priority, ref.owner) end
end

-- One ref of an owner, from the first of this core's versions that has one.
local function take_one(owner, priority)
  for v = FIRST_VERSION, #ARGV do
    local lane = lane_key(ARGV[v], priority, owner)
    local text, ref = choose(lane)
    if text then
      pop(lane, text, ref, ARGV[v])
      return true
    end
  end
  return false
end

local function take_from(priority)
  local skipped = 0
  while tokens < spare and #held < 2 * max_refs do
    local owner = redis.call('ZRANGE', 'cl:shares:' .. priority, skipped, skipped)[1]
    if not owner then return end
    local name = owner .. ':' .. priority .. ','
    local is_met = string.find(met, ',' .. name, 1, true)
    if (is_met and tokens >= room) or not take_one(owner, priority) then
      skipped = skipped + 1
    elseif not is_met then
      met = met .. name
    end
  end
end

if not take_returned() then
  local from, to, step = 0, 2, 1
  if redis.call('HINCRBY', 'cl:turns', core, 1) % 8 == 0 then from, to, step = 2, 0, -1 end
  for priority = from, to, step do take_from(priority) end
end
if #taken == 0 then
  if room == 0 then return {} end
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
