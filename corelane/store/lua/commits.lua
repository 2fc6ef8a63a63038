-- Commits: what a core corrects, reports, finishes and gives back under its lease.

-- Charge an owner's share, and its job among the owner's larger jobs, when a slice in progress costs more, or less,
-- than was charged at its claim.
local function charge_share(ref, more)
  if more == 0 then return end
  local version = call('HGET', keys.job(ref.job), 'version')
  if call('ZSCORE', keys.shares(ref.priority), ref.owner) then charge_owner(ref, more) end
  local line = version and keys.line(version, ref.priority, ref.owner)
  if line and call('ZSCORE', line, ref.job) then call('ZINCRBY', line, more, ref.job) end
end

-- Take a slice out of a claim, and what it is charged there. That may have been corrected since its ref was read.
-- → its tokens there, nil if the claim does not hold it any more
local function release_slice(claim, core, ref)
  local name = ref.job .. ':' .. ref.first
  local held = call('HGET', claim, name)
  if not held then return nil end
  call('HDEL', claim, name)
  local tokens = parse(held).tokens
  charge(keys.HELD, core, ref, -tokens)
  return tokens
end

-- A claim that holds nothing needs no lease. → 1 if it holds anything
local function end_if_empty(lease)
  local holds = call('EXISTS', keys.claim(lease))
  if holds == 0 then call('ZREM', keys.LEASES, lease) end
  return holds
end

-- commit{lease, core, ttl, slices: [[ref, succeeded, failed]…], spent: {job: [tokens, core µs]}},
-- results of each… → {slices refused, 1 if the claim holds others}
-- The refs carry the tokens that were found when the slices were read: that is what their owners are charged.
-- The fence: a slice counts only while the claim still holds it. A late commit finds it gone. The payload of a slice
-- is deleted when the whole slice is answered at once. If items were cut from the slice, it stays until the job is
-- final. If an item failed, it stays for a retry, unless its items are in a file.
define('commit', function(ask, args)
  local claim, refused, done, answered, late = keys.claim(ask.lease), 0, {}, {}, {}
  for i, slice in ipairs(ask.slices) do
    local ref, succeeded, failed = parse(slice[1]), slice[2], slice[3]
    local charged = release_slice(claim, ask.core, ref)
    if charged then
      charge_share(ref, ref.tokens - charged)
      done[ref.owner] = (done[ref.owner] or 0) + ref.tokens
      count_attempt(ref)
      local wanted = jobs.settle(ref.job, ref.first, args[i + 1], succeeded, failed, ask.ttl, ask)
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
  hooks.spend(ask, answered, late)
  return { refused, end_if_empty(ask.lease) }
end)

-- correct{core, found: [[lease, ref]…]} → how many charges were corrected
-- Corrects what slices in progress cost, as their core found when it read them: each ref carries the tokens to
-- charge. The ref in the claim says what is charged, so a repeated call changes nothing.
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

-- return_claim{lease, only_lapsed, ttl, envelope, slices: [{ref, version, refs: [ref…], lost: [[first,
-- results]…]}…], lost_tokens} → slices taken back
-- Only what the claim still holds is taken back: meanwhile a commit may have come, or a heartbeat may have renewed the
-- lease.
define('return_claim', function(ask)
  local deadline = call('ZSCORE', keys.LEASES, ask.lease)
  if ask.only_lapsed and deadline and tonumber(deadline) > now_ms() then return 0 end
  local claim, core, back, lapsed = keys.claim(ask.lease), string.match(ask.lease, '^(.*)#%d+$'), 0, 0
  for _, slice in ipairs(ask.slices) do
    local ref = parse(slice.ref)
    local charged = release_slice(claim, core, ref)
    if charged then
      back = back + 1
      -- A slice that was handed back keeps its ref. One that was lost with its core counts as an attempt.
      if slice.refs[1] ~= slice.ref then
        lapsed = 1
        count_attempt(ref)
        waste('core_lost', charged)
      end
      for _, lost in ipairs(slice.lost) do jobs.settle(ref.job, lost[1], lost[2], 0, 1, ask.ttl) end
      if job_is_open(ref.job) then enqueue(slice.version, slice.refs, ask.envelope, true) end
    end
  end
  if ask.lost_tokens then waste('handed_back', ask.lost_tokens) end
  count('corelane_leases_lapsed_total', '', lapsed)
  end_if_empty(ask.lease)
  return back
end)
