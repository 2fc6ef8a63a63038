-- Claims: what a core takes under a lease. `pick` decides what is next; here it is read, taken and charged.

-- How many tokens of these versions a core may claim if so little waits that idle cores would get none. nil if there is
-- no idle core, or enough for all. The rest is left for whichever core asks next, this one too after its next batch.
local function part_of_little(core, versions, room)
  local waiting, takers = 0, 1
  for _, version in ipairs(versions) do
    local tokens = tonumber(call('HGET', keys.WAITING, version) or 0)
    waiting = waiting + tokens
    if tokens > 0 and tokens < room * call('ZCARD', keys.holders(version)) then
      local others = 0
      for _, other in ipairs(without_work(holders_of(version))) do
        if other ~= core then others = others + 1 end
      end
      takers = math.max(takers, 1 + others)
    end
  end
  return takers > 1 and waiting / takers or nil
end

-- Of these versions, those for which work waits, and that are not paused.
local function with_work(versions, paused)
  local left = {}
  for i, tokens in ipairs(#versions > 0 and call('HMGET', keys.WAITING, unpack(versions)) or {}) do
    if tokens and not paused['model:' .. versions[i]] then left[#left + 1] = versions[i] end
  end
  return left
end

-- Small payloads are part of the reply, which saves a lone item a trip. Reading large ones here costs more than a
-- trip.
local SMALL_PAYLOAD_BYTES = 2048

-- A core that reads a document looks for a second job in this many of an owner's larger jobs.
local LOOK_PAST = 32

-- A claim drops at most this many refs of ended jobs, which takes Redis a few milliseconds. Its core comes again at once.
-- A job that the claim finds expired counts as EXPIRED of them, as ending it takes as long.
local MOST_DROPPED, EXPIRED = 250, 10

-- Take a ref that was removed from its lane or list.
-- → its tokens; 0 if its job wants no result any more
local function take(claim, ref, version)
  local ask, id = claim.ask, ref.job
  local status, expires, options = unpack(call('HMGET', keys.job(id), 'status', 'expires_ms', 'options'))
  if is_open(status) and expires and tonumber(expires) <= claim.now then
    jobs.cut_short(id, 'expired', ask.ttl)
    status, claim.dropped = 'expired', claim.dropped + EXPIRED
  end
  if not is_open(status) then
    charge(keys.WAITING, version, ref, -ref.tokens)
    claim.dropped = claim.dropped + 1
    return 0
  end
  jobs.begin_job(id, status, ref.priority, ask.ttl)
  claim.lease = claim.lease or string.format('%s#%.0f', ask.core, next_fence())
  add(keys.WAITING, version, -ref.tokens)
  add(keys.HELD, ask.core, ref.tokens)
  claim.tokens, claim.last, claim.taken = claim.tokens + ref.tokens, ref.tokens, claim.taken + 1
  local small = call('HSTRLEN', keys.payloads(id), ref.payload) <= SMALL_PAYLOAD_BYTES
  local reply, held = claim.reply, claim.held
  local at = #reply
  reply[at + 1], reply[at + 2] = ref.text, version
  reply[at + 3], reply[at + 4] = small and call('HGET', keys.payloads(id), ref.payload) or '', options
  reply[at + 5] = tostring(share_of(ref.owner))
  held[#held + 1], held[#held + 2] = id .. ':' .. ref.first, ref.text
  return ref.tokens
end

-- The first ref of a list. Texts before it that are no refs are dropped.
local function first_ref(list)
  local text = call('LINDEX', list, 0)
  while text do
    local ref = parse(text)
    if ref then return ref end
    drop_forged(list, text)
    text = call('LINDEX', list, 0)
  end
end

-- Returned refs that a claim looks at.
local MOST_LOOKED_AT = 100

-- Take work that returned from a lost claim. It goes before everything else, alone, to a core with nothing else in
-- progress. Until it is taken, other cores claim nothing, so that one of them is soon idle. A core that reads a
-- document does not wait for it.
-- → whether this core must leave the lanes alone
local function take_returned(claim)
  if claim.ask.laden then return false end
  for _, version in ipairs(claim.versions) do
    local returned, passed = keys.returned(version), 0
    claim.dropped = claim.dropped + drop_ended(returned, version, MOST_DROPPED)
    local texts = call('LRANGE', returned, 0, MOST_LOOKED_AT - 1)
    for _, text in ipairs(texts) do
      local ref = parse(text)
      if not ref then
        drop_forged(returned, text)
      elseif claim.paused['owner:' .. ref.owner] then
        passed = passed + 1
      elseif not claim.ask.idle then
        return true
      else
        call('LREM', returned, 1, text)
        if take(claim, ref, version) > 0 then return true end
      end
    end
    if passed == MOST_LOOKED_AT then
      -- All of them are paused: the next claim looks at those behind.
      call('LTRIM', returned, passed, -1)
      call('RPUSH', returned, unpack(texts))
    elseif #texts == MOST_LOOKED_AT then
      claim.dropped = MOST_DROPPED
    end
    if claim.dropped >= MOST_DROPPED then return true end
  end
  return false
end

-- Read what an owner has waiting for a version, as `pick.next` wants it, with its lane and line. For a core that reads
-- a document, other documents are left out.
local function read_waiting(ask, version, priority, owner)
  local lane, line = keys.lane(version, priority, owner), keys.line(version, priority, owner)
  local scored = call('ZRANGE', line, 0, ask.laden and LOOK_PAST or 1, 'WITHSCORES')
  local waiting = { lane = lane, line = line, small = first_ref(lane) }
  for i = 1, #scored, 2 do
    local job, served = scored[i], tonumber(scored[i + 1])
    if job == SMALL_JOBS then
      waiting.charged = served
    elseif not waiting.larger then
      local ref = first_ref(keys.refs(job))
      if not ref then
        leave_line(line, job, version, priority, owner)
      else
        waiting.level = waiting.level or served
        if not (ask.laden and ref.tokens > ask.document) then waiting.larger = ref end
      end
    end
  end
  if #scored > 2 and not waiting.charged then waiting.charged = tonumber(call('ZSCORE', line, SMALL_JOBS) or nil) end
  -- While no small job waits, small jobs gain no credit: they start level when some come.
  if not waiting.small and waiting.charged and pick.small_first(waiting.charged, waiting.level) then
    call('ZREM', line, SMALL_JOBS)
  end
  return waiting
end

-- Take the ref of a small or larger job, and charge its owner and its job.
local function serve(claim, waiting, kind, ref, version)
  local list = kind == 'small' and waiting.lane or keys.refs(ref.job)
  call('LPOP', list)
  local served = take(claim, ref, version)
  if served == 0 and claim.dropped < MOST_DROPPED then
    claim.dropped = claim.dropped + drop_ended(list, version, MOST_DROPPED - claim.dropped)
  end
  if served > 0 then
    charge_owner(ref, served)
    if kind == 'larger' then
      call('ZINCRBY', waiting.line, served, ref.job)
    elseif waiting.level then
      call('ZADD', waiting.line, pick.small_charge(waiting, served), SMALL_JOBS)
    end
  end
  if call('EXISTS', list) == 1 then return end
  if kind == 'small' then
    strike_off(version, ref.priority, ref.owner)
  else
    leave_line(waiting.line, ref.job, version, ref.priority, ref.owner)
  end
end

-- Take one ref of an owner, for the first of this core's versions that has one.
-- → whether it is `small` or `larger`
local function take_one(claim, owner, priority, small, larger)
  for _, version in ipairs(claim.versions) do
    local waiting = read_waiting(claim.ask, version, priority, owner)
    if not small then waiting.small = nil end
    if not larger then waiting.larger = nil end
    local kind, ref = pick.next(waiting)
    if kind then
      serve(claim, waiting, kind, ref, version)
      return kind
    end
  end
end

-- Take refs by fair shares while there is room, until the claim has dropped its part of those of ended jobs. Owners of
-- which the core holds enough are passed over, but not for one that was served much more: its share would not count.
local MOST_LEAD = 4096
local function take_from(claim, priority)
  local skipped, small_tokens, least = 0, {}, nil
  while claim.dropped < MOST_DROPPED and pick.has_room(claim, claim.ask.spare, claim.ask.refs) do
    local owner, level = unpack(call('ZRANGE', keys.shares(priority), skipped, skipped, 'WITHSCORES'))
    if not owner or (least and tonumber(level) > least + MOST_LEAD) then return end
    local line, before = owner .. ':' .. priority, claim.tokens
    local small, larger = pick.may_take(claim, line)
    local may_have = (small or larger) and not claim.paused['owner:' .. owner]
    local kind = may_have and take_one(claim, owner, priority, small, larger)
    if kind then
      small_tokens[owner] = (small_tokens[owner] or 0) + (kind == 'small' and claim.tokens - before or 0)
      pick.note_met(claim.met, line, kind, small_tokens[owner])
    else
      skipped = skipped + 1
      if not (small and larger) then least = least or tonumber(level) end
    end
  end
end

-- Nothing was found for a core: let its bell ring again.
local function take_nothing(claim)
  local ask = claim.ask
  local core, bell = ask.core, keys.bell(ask.core)
  if ask.room == 0 then return {} end
  if claim.dropped >= MOST_DROPPED then
    call('SET', bell, 'r', 'EX', 30)
    return { 'more' }
  end
  if ask.linger then
    call('SET', bell, 'l', 'EX', 5)
  else
    call('DEL', bell, keys.wake(core))
  end
  return {}
end

-- claim{core, turn, room, spare, met, refs, document, laden, lease_ms, linger, idle, ttl, versions} → {lease,
-- and per ref: ref, version, payload, options, its owner's share}; {} if nothing was taken; {`more`} if only refs of ended jobs were taken off,
-- and others may wait behind them
-- Takes up to `room` tokens, at least one; or up to `spare`, the excess from owners and priorities of which this core
-- holds nothing. `met` lists what it holds: `owner:priority`, or `owner:priority:small` for a batch's worth of
-- small jobs. If there is neither room nor such an owner, the bell stays as it is. A core that reads a document (more
-- than `document` tokens) is laden: it takes no second one. Paused versions and owners are skipped.
-- "Nothing there" and "the bell may ring again" are one step, so no wake-up is lost.
define('claim', function(ask)
  local core, paused = ask.core, read_paused()
  local versions = with_work(ask.versions, paused)
  local claim = {
    ask = ask, now = now_ms(), versions = versions, paused = paused, room = ask.room, met = {},
    tokens = 0, taken = 0, dropped = 0, last = 0, reply = { '' }, held = {},
    part = ask.room > 0 and part_of_little(core, versions, ask.room) or nil,
  }
  for _, line in ipairs(ask.met) do claim.met[line] = true end
  call('HSET', keys.CLAIMED, core, claim.now)
  local is_held_up = take_returned(claim)
  if not is_held_up and #versions > 0 then
    for _, priority in ipairs(pick.priorities(ask.turn)) do take_from(claim, priority) end
  end
  if claim.taken == 0 then return take_nothing(claim) end
  call('HSET', keys.claim(claim.lease), unpack(claim.held))
  call('ZADD', keys.LEASES, claim.now + ask.lease_ms, claim.lease)
  call('SET', keys.bell(core), 'r', 'EX', 30)
  claim.reply[1] = claim.lease
  return claim.reply
end)
