-- claim(core, room, spare, met, refs, document, laden, lease_ms, linger, idle, ttl, version…)
--   → {lease, then per ref: ref, version, payload, options} or {}
-- What was returned from a lost claim goes before all else, alone, to a core with nothing else in progress; others claim
-- nothing until it is gone, so that one is soon idle. Then high priority first, but every eighth time the lowest, so that
-- nothing starves. Within a priority the owner who was served the fewest tokens goes first. Within an owner small jobs go
-- first, oldest first, up to eight tokens for each one of the larger jobs; these share by tokens. Up to `room` tokens, at
-- least one; up to `spare` from an owner and priority where this core holds nothing (`met` lists the others, as
-- `,owner:priority,…,`, and those where it holds a batch's worth of small jobs, as `,owner:priority:small,…,`), so that
-- a newcomer waits for no backlog, not even for its own. Without room, and no newcomer there, the bell stays as it is.
-- A core that reads a document (more than `document` tokens) is laden: it takes no second
-- one, and holds back for nothing. "Nothing there" and "the bell may ring again" are one step, so no wake-up is
-- lost. Small payloads come along, which saves a lone question a trip; large ones cost more in a script than a trip does.
local core, room, spare, met = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), ARGV[4]
local max_refs, document, laden = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7] == '1'
local lease_ms, linger, idle, ttl = tonumber(ARGV[8]), ARGV[9], ARGV[10] == '1', tonumber(ARGV[11])
local FIRST_VERSION, SMALL_PAYLOAD_BYTES, LOOK_PAST, SMALL_WEIGHT = 12, 2048, 32, 8
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
      local text = redis.call('LINDEX', returned, 0)
      local ref = parse(text)
      if not ref then
        drop_forged(returned, text)
      else
        redis.call('LPOP', returned)
        if take(text, ref, ARGV[v]) > 0 then return true end
      end
    end
  end
  return false
end

-- The first ref of a list and its place, or, for a laden core, the first that is no document among so many.
local function choose(list, most)
  local forged = 0
  for place, text in ipairs(redis.call('LRANGE', list, 0, laden and most or 0)) do
    local ref = parse(text)
    if not ref then
      drop_forged(list, text)
      forged = forged + 1
    elseif not (laden and ref.tokens > document) then
      return text, ref, place - forged
    end
  end
  if forged > 0 then return choose(list, most) end
end

-- Take a ref out of its list and charge its owner; the tokens taken.
local function pop(list, text, ref, place, version)
  if place == 1 then redis.call('LPOP', list) else redis.call('LREM', list, 1, text) end
  local served = take(text, ref, version)
  if served > 0 then redis.call('ZINCRBY', 'cl:shares:' .. ref.priority, served, ref.owner) end
  return served
end

-- The oldest of an owner's small jobs. Beside larger ones an eighth of its tokens is charged to all small ones together.
local function take_small(lane, line, version, priority, owner, had)
  local text, ref, place = choose(lane, LOOK_PAST)
  if not text then return false end
  local served = pop(lane, text, ref, place, version)
  if had and served > 0 then redis.call('ZADD', line, had + served / SMALL_WEIGHT, SMALL_JOBS) end
  if redis.call('EXISTS', lane) == 0 then strike_off(version, priority, owner) end
  return true
end

-- The next ref of the larger job that was served least. A laden core looks at `LOOK_PAST` refs of the jobs in line. One
-- that is alone competes with nobody and is charged nothing.
local function take_larger(jobs, line, version, priority, owner, alone)
  local left = LOOK_PAST
  for _, job in ipairs(jobs) do
    local list = refs_key(job)
    local text, ref, place = choose(list, left)
    if text then
      local served = pop(list, text, ref, place, version)
      if served > 0 and not alone then redis.call('ZINCRBY', line, served, job) end
    end
    local length = redis.call('LLEN', list)
    if length == 0 then leave_line(line, job, version, priority, owner) end
    if text then return true end
    left = left - length - 1
    if left <= 0 then return false end
  end
  return false
end

-- One ref of an owner, from the first of this core's versions that has one: small jobs first until they have had their
-- share, then the larger one that was served least. `small` and `larger` say which of both may be taken; → which was.
local function take_one(owner, priority, small, larger)
  for v = FIRST_VERSION, #ARGV do
    local version = ARGV[v]
    local lane, line = lane_key(version, priority, owner), line_key(version, priority, owner)
    local scored, jobs, level = redis.call('ZRANGE', line, 0, laden and LOOK_PAST or 1, 'WITHSCORES'), {}, nil
    for i = 1, #scored, 2 do
      if scored[i] ~= SMALL_JOBS then
        jobs[#jobs + 1] = scored[i]
        level = level or tonumber(scored[i + 1])
      end
    end
    local alone = #scored == 2
    local had = level and not alone and tonumber(redis.call('ZSCORE', line, SMALL_JOBS) or nil)
    local small_first = not had or had <= level
    if small and small_first then
      if take_small(lane, line, version, priority, owner, had or level) then return 'small' end
      -- None waits: they save nothing up, but start level when some come.
      if had then redis.call('ZREM', line, SMALL_JOBS) end
    end
    if larger and take_larger(jobs, line, version, priority, owner, alone) then return 'larger' end
    if small and not small_first and take_small(lane, line, version, priority, owner, had) then return 'small' end
  end
end

-- Refs by fair shares until there is room for no more. `met` grows by who was served: a larger job by one slice, small
-- ones by what a batch can hold.
local function take_from(priority)
  local skipped, small_tokens = 0, {}
  while tokens < spare and #held < 2 * max_refs do
    local owner = redis.call('ZRANGE', 'cl:shares:' .. priority, skipped, skipped)[1]
    if not owner then return end
    local name, before, full = owner .. ':' .. priority, tokens, tokens >= room
    local small = not full or not string.find(met, ',' .. name .. ':small,', 1, true)
    local larger = not full or not string.find(met, ',' .. name .. ',', 1, true)
    local took = (small or larger) and take_one(owner, priority, small, larger)
    if not took then
      skipped = skipped + 1
    elseif took == 'larger' then
      met = met .. name .. ','
    else
      small_tokens[owner] = (small_tokens[owner] or 0) + tokens - before
      if small_tokens[owner] >= SMALL_TOKENS then met = met .. name .. ':small,' end
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
