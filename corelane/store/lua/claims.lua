-- Claims: what a core takes, corrects, reports and commits under its lease.

-- Charge an owner's share for a stretch in progress that costs more, or less, than was charged when it was claimed; and its
-- job among the larger jobs of the owner, if it has rivals.
local function charge_share(ref, more)
  if more == 0 then return end
  local shares, version = keys.shares(ref.priority), call('HGET', keys.job(ref.job), 'version')
  if call('ZSCORE', shares, ref.owner) then call('ZINCRBY', shares, more, ref.owner) end
  local line = version and keys.line(version, ref.priority, ref.owner)
  if line and call('ZSCORE', line, ref.job) and call('ZCARD', line) > 1 then
    call('ZINCRBY', line, more, ref.job)
  end
end

-- Take a stretch out of a claim, with what it is charged there, which may have been corrected since its ref was read.
-- → its tokens there, nil if the claim holds it no more
local function release_stretch(claim, core, ref)
  local name = ref.job .. ':' .. ref.first
  local held = call('HGET', claim, name)
  if not held then return nil end
  call('HDEL', claim, name)
  local tokens = parse(held).tokens
  charge(keys.HELD, core, ref, -tokens)
  return tokens
end

-- A claim that holds nothing needs no lease.
local function end_if_empty(lease)
  if call('EXISTS', keys.claim(lease)) == 0 then call('ZREM', keys.LEASES, lease) end
end

-- The tokens of these versions that a core may claim, where so little waits that cores without work would get none; nil
-- where there is no such core, or enough for all. Work that is left waits for no particular core: whichever asks next
-- claims it, this one too after its next batch.
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

-- The versions of a core that it may claim for: none if the core is paused.
local function unpaused(core, versions, paused)
  local left = {}
  for _, version in ipairs(versions) do
    if not (paused['core:' .. core] or paused['model:' .. version]) then left[#left + 1] = version end
  end
  return left
end

-- claim{core, room, spare, met, refs, document, laden, lease_ms, linger, idle, helps, ttl, versions, cache}
--   → {Redis' time in µs, then if anything was taken: lease, and per ref: ref, version, payload, options; or `part`, and
--   what `take_part` returns}
-- What was returned from a lost claim goes before all else, alone, to a core with nothing else in progress; others claim
-- nothing until it is gone, so that one is soon idle. Then high priority first, but every eighth time the lowest, so that
-- nothing starves. Within a priority the owner who was served the fewest tokens goes first. Within an owner small jobs go
-- first, oldest first, up to eight tokens for each one of the larger jobs; these share by tokens. Up to `room` tokens, at
-- least one; up to `spare` from an owner and priority where this core holds nothing (`met` lists the others, as
-- `,owner:priority,…,`, and those where it holds a batch's worth of small jobs, as `,owner:priority:small,…,`), so that
-- a newcomer waits for no backlog, not even for its own. Beside cores without work it takes its part of little (`part`): the
-- next ref only if half of one as large as the last fits. Without room, and no newcomer there, the bell stays as it is.
-- A core that reads a document (more than `document` tokens) is laden: it takes no second one, and holds back for nothing.
-- A core that `helps` takes a part of another core's item where it would claim nothing, and nothing is held up.
-- A core, a version or an owner that is paused is passed over.
-- "Nothing there" and "the bell may ring again" are one step, so no wake-up is lost. Small payloads come along, which saves
-- a lone question a trip; large ones cost more in a function than a trip does.
local SMALL_PAYLOAD_BYTES, LOOK_PAST, SMALL_WEIGHT = 2048, 32, 8
define('claim', function(ask)
  local core, room, spare, met, laden, versions = ask.core, ask.room, ask.spare, ask.met, ask.laden, ask.versions
  local now, tokens, taken, held, last, lease, paused = now_ms(), 0, {}, {}, 0, nil, read_paused()
  if next(paused) then versions = unpaused(core, versions, paused) end
  local part = room > 0 and part_of_little(core, versions, room)
  call('HSET', keys.CLAIMED, core, now)

  -- Tokens taken; none for a ref whose job wants no answer any more.
  local function take(text, ref, version)
    local status, expires, options, digests =
      unpack(call('HMGET', keys.job(ref.job), 'status', 'expires_ms', 'options', 'digests'))
    if is_open(status) and expires and tonumber(expires) <= now then
      jobs.cut_short(ref.job, 'expired', ask.ttl)
      status = 'expired'
    end
    if not is_open(status) then
      charge(keys.WAITING, version, ref, -ref.tokens)
      return 0
    end
    jobs.begin_job(ref.job, status, ref.priority, ask.ttl)
    lease = lease or string.format('%s#%.0f', core, next_fence())
    if digests and ref.attempt == 1 and reuse.claim(ref, text, digests, ask.ttl, ask.cache, lease) then
      charge(keys.WAITING, version, ref, -ref.tokens)
      return 0
    end
    add(keys.WAITING, version, -ref.tokens)
    add(keys.HELD, core, ref.tokens)
    tokens, last = tokens + ref.tokens, ref.tokens
    local small = call('HSTRLEN', keys.payloads(ref.job), ref.payload) <= SMALL_PAYLOAD_BYTES
    local at = #taken
    taken[at + 1], taken[at + 2] = text, version
    taken[at + 3], taken[at + 4] = small and call('HGET', keys.payloads(ref.job), ref.payload) or '', options
    held[#held + 1], held[#held + 2] = ref.job .. ':' .. ref.first, text
    return ref.tokens
  end

  -- One returned ref, if this core may have it; whether it must leave the lanes alone.
  local function take_returned()
    if laden then return false end
    for _, version in ipairs(versions) do
      local returned, place = keys.returned(version), 0
      local text = call('LINDEX', returned, place)
      while text do
        local ref = parse(text)
        if ref and paused['owner:' .. ref.owner] then
          place = place + 1
        elseif not ask.idle then
          return true
        elseif not ref then
          drop_forged(returned, text)
        else
          call('LREM', returned, 1, text)
          if take(text, ref, version) > 0 then return true end
        end
        text = call('LINDEX', returned, place)
      end
    end
    return false
  end

  -- The first ref of a list and its place, or, for a laden core, the first of `most` that is no document.
  local function choose(list, most)
    local forged = 0
    for place, text in ipairs(call('LRANGE', list, 0, laden and most or 0)) do
      local ref = parse(text)
      if not ref then
        drop_forged(list, text)
        forged = forged + 1
      elseif not (laden and ref.tokens > ask.document) then
        return text, ref, place - forged
      end
    end
    if forged > 0 then return choose(list, most) end
  end

  -- Take a ref out of its list and charge its owner; the tokens taken.
  local function pop(list, text, ref, place, version)
    if place == 1 then call('LPOP', list) else call('LREM', list, 1, text) end
    local served = take(text, ref, version)
    if served > 0 then call('ZINCRBY', keys.shares(ref.priority), served, ref.owner) end
    return served
  end

  -- The oldest of an owner's small jobs. Beside larger ones an eighth of its tokens is charged to all small ones together.
  local function take_small(lane, line, version, priority, owner, had)
    local text, ref, place = choose(lane, LOOK_PAST)
    if not text then return false end
    local served = pop(lane, text, ref, place, version)
    if had and served > 0 then call('ZADD', line, had + served / SMALL_WEIGHT, SMALL_JOBS) end
    if call('EXISTS', lane) == 0 then strike_off(version, priority, owner) end
    return true
  end

  -- The next ref of the larger job that was served least. A laden core looks at `LOOK_PAST` refs of the jobs in line. One
  -- that is alone competes with nobody and is charged nothing.
  local function take_larger(names, line, version, priority, owner, alone)
    local left = LOOK_PAST
    for _, job in ipairs(names) do
      local list = keys.refs(job)
      local text, ref, place = choose(list, left)
      if text then
        local served = pop(list, text, ref, place, version)
        if served > 0 and not alone then call('ZINCRBY', line, served, job) end
      end
      local length = call('LLEN', list)
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
    for _, version in ipairs(versions) do
      local lane, line = keys.lane(version, priority, owner), keys.line(version, priority, owner)
      local scored, names, level = call('ZRANGE', line, 0, laden and LOOK_PAST or 1, 'WITHSCORES'), {}, nil
      for i = 1, #scored, 2 do
        if scored[i] ~= SMALL_JOBS then
          names[#names + 1] = scored[i]
          level = level or tonumber(scored[i + 1])
        end
      end
      local alone = #scored == 2
      local had = level and not alone and tonumber(call('ZSCORE', line, SMALL_JOBS) or nil)
      local small_first = not had or had <= level
      if small and small_first then
        if take_small(lane, line, version, priority, owner, had or level) then return 'small' end
        -- None waits: they save nothing up, but start level when some come.
        if had then call('ZREM', line, SMALL_JOBS) end
      end
      if larger and take_larger(names, line, version, priority, owner, alone) then return 'larger' end
      if small and not small_first and take_small(lane, line, version, priority, owner, had) then return 'small' end
    end
  end

  -- Refs by fair shares until there is no more room. `met` grows by the owners served: by one slice of a larger job, or by
  -- what a batch can hold of small ones.
  local function take_from(priority)
    local skipped, small_tokens = 0, {}
    while tokens < spare and #held < 2 * ask.refs do
      if part and #held > 0 and tokens + last / 2 > part then return end
      local owner = call('ZRANGE', keys.shares(priority), skipped, skipped)[1]
      if not owner then return end
      local name, before, full = owner .. ':' .. priority, tokens, tokens >= room
      local small = not full or not string.find(met, ',' .. name .. ':small,', 1, true)
      local larger = not full or not string.find(met, ',' .. name .. ',', 1, true)
      local may_have = (small or larger) and not paused['owner:' .. owner]
      local took = may_have and take_one(owner, priority, small, larger)
      if not took then
        skipped = skipped + 1
      elseif took == 'larger' then
        met = met .. name .. ','
      else
        small_tokens[owner] = (small_tokens[owner] or 0) + tokens - before
        if small_tokens[owner] >= BESIDE_TOKENS then met = met .. name .. ':small,' end
      end
    end
  end

  local is_held_up = take_returned()
  if not is_held_up and #versions > 0 then
    local from, to, step = 0, 2, 1
    if call('HINCRBY', keys.TURNS, core, 1) % 8 == 0 then from, to, step = 2, 0, -1 end
    for priority = from, to, step do take_from(priority) end
  end
  if #taken == 0 then
    if room == 0 then return { now_us() } end
    local part = ask.helps and not is_held_up and parts.take(core, versions, ask.lease_ms)
    if part then
      call('SET', keys.bell(core), 'r', 'EX', 30)
      return { now_us(), 'part', unpack(part) }
    end
    if ask.linger then
      call('SET', keys.bell(core), 'l', 'EX', 5)
    else
      call('DEL', keys.bell(core), keys.wake(core))
    end
    return { now_us() }
  end
  call('HSET', keys.claim(lease), unpack(held))
  call('ZADD', keys.LEASES, now + ask.lease_ms, lease)
  call('SET', keys.bell(core), 'r', 'EX', 30)
  table.insert(taken, 1, lease)
  table.insert(taken, 1, now_us())
  return taken
end)

-- commit{lease, core, ttl, stretches: [[ref, succeeded, failed]…], spent: {job: sums}, sent_us, price, lost, cache, shared: [key
--   of an item that was offered…]}, results of each… → stretches refused
-- The refs carry the tokens that were found when the stretches were read: that is what their owners are charged.
-- The fence: a stretch counts only while the claim still holds it. A late commit finds it gone. The payload of a slice that
-- was answered whole goes at once; what was cut from one stays with it until the job is final. One in which an item failed
-- stays for a retry, unless its items stand in a file.
define('commit', function(ask, args)
  local claim, refused, done, answered, late = keys.claim(ask.lease), 0, {}, {}, {}
  ask.spent, ask.price, ask.items, ask.rows = ask.spent or {}, ask.price or '-', {}, {}
  local shared = {}
  for _, key in ipairs(ask.shared or {}) do shared[key] = true end
  for i, stretch in ipairs(ask.stretches) do
    local ref, succeeded, failed = parse(stretch[1]), stretch[2], stretch[3]
    local charged = release_stretch(claim, ask.core, ref)
    if charged then
      charge_share(ref, ref.tokens - charged)
      done[ref.owner] = (done[ref.owner] or 0) + ref.tokens
      count_attempt(ref)
      if shared[ref.job .. ':' .. ref.first] then parts.settle_offer(ask.lease, ref, false) end
      local wanted = jobs.answer(ref.job, ref.first, args[i + 1], succeeded, failed, ask.ttl, ask)
      if not wanted then
        late[ref.job] = ref.owner
        if not ask.spent[ref.job] and succeeded + failed > 0 then waste(reason_of(ref.job), ref.tokens) end
      end
      answered[ref.job] = wanted or answered[ref.job]
      local is_spent = failed == 0 or call('HEXISTS', keys.job(ref.job), 'file') == 1
      if wanted and ref.attempt == 1 and is_spent then call('HDEL', keys.payloads(ref.job), ref.payload) end
    else
      -- Its tokens were counted as wasted when the claim was taken back.
      refused = refused + 1
    end
  end
  local second = keys.rate(math.floor(now_ms() / 1000))
  for owner, tokens in pairs(done) do
    call('HINCRBY', second, owner, tokens)
    call('EXPIRE', second, 60)
  end
  usage.keep(ask, answered, late)
  end_if_empty(ask.lease)
  return refused
end, 'allow-oom')

-- correct{core, found: [[lease, ref]…]} → how many charges were corrected
-- What stretches in progress cost, as their core found when it read them: each ref carries the tokens it is to be charged.
-- The ref in the claim says what is charged, so this counts once however often it is repeated.
define('correct', function(ask)
  local corrected = 0
  for _, found in ipairs(ask.found) do
    local claim, ref = keys.claim(found[1]), parse(found[2])
    local name = ref.job .. ':' .. ref.first
    local held = call('HGET', claim, name)
    if held and held ~= found[2] then
      local more = ref.tokens - parse(held).tokens
      call('HSET', claim, name, found[2])
      charge(keys.HELD, ask.core, ref, more)
      charge_share(ref, more)
      corrected = corrected + 1
    end
  end
  return corrected
end)

-- add_partials{lease, items: [[job, first of its stretch]…]}, what was found of each as JSON… → how many became events
-- The best answers so far of items in progress. The fence: only what the claim still holds counts, so nothing comes after
-- an item's answer, and nothing from a core whose lease was taken back.
define('add_partials', function(ask, args)
  local claim, added = keys.claim(ask.lease), 0
  for i, item in ipairs(ask.items) do
    if call('HEXISTS', claim, item[1] .. ':' .. item[2]) == 1 and job_is_open(item[1]) then
      jobs.add_event(item[1], 'item.partial', 'data', args[i + 1])
      added = added + 1
    end
  end
  return added
end)

-- return_claim{lease, only_lapsed, ttl, envelope, stretches: [{ref, version, refs: [ref…], lost: [[first, results]…]}…],
--   lost, price} → stretches taken back
-- Only what the claim still holds is taken back: a commit may have come in between, a heartbeat may have renewed the lease.
define('return_claim', function(ask)
  local deadline = call('ZSCORE', keys.LEASES, ask.lease)
  if ask.only_lapsed and deadline and tonumber(deadline) > now_ms() then return 0 end
  local claim, core, back, lapsed = keys.claim(ask.lease), string.match(ask.lease, '^(.*)#%d+$'), 0, 0
  for _, stretch in ipairs(ask.stretches) do
    local ref = parse(stretch.ref)
    local charged = release_stretch(claim, core, ref)
    if charged then
      back = back + 1
      -- A stretch that was handed back comes as it was; one that was lost with its core counts as an attempt.
      if stretch.refs[1] ~= stretch.ref then
        lapsed = 1
        count_attempt(ref)
        waste('core_lost', charged)
      end
      reuse.release_led(ref.job, ref.first, tonumber(ref.count))
      parts.settle_offer(ask.lease, ref, true)
      for _, lost in ipairs(stretch.lost) do jobs.answer(ref.job, lost[1], lost[2], 0, 1, ask.ttl) end
      if job_is_open(ref.job) then enqueue(stretch.version, stretch.refs, ask.envelope, true) end
    end
  end
  if ask.lost then
    usage.add_lost(ask.lost, ask.price)
    waste('handed_back', ask.lost[2] or 0)
  end
  count('corelane_leases_lapsed_total', '', lapsed)
  end_if_empty(ask.lease)
  return back
end, 'allow-oom')
