-- Gauges: the state of the work that is not done.

-- The oldest job with refs in an owner's lane or line. That is the one with the lowest id.
local function oldest_waiting(name, priority, owner, larger)
  if string.sub(name, 1, 1) ~= LINE_MARK then
    local ref = parse(call('LINDEX', keys.lane(name, priority, owner), 0) or '')
    return name, ref and ref.job
  end
  local version, oldest = string.sub(name, 2), nil
  for _, job in ipairs(call('ZRANGE', keys.line(version, priority, owner), 0, larger - 1)) do
    if job ~= SMALL_JOBS and (not oldest or job < oldest) then oldest = job end
  end
  return version, oldest
end

-- The tokens in an owner's lane or line.
local function tokens_of(name, priority, owner, larger)
  local lists, tokens = { keys.lane(name, priority, owner) }, 0
  if string.sub(name, 1, 1) == LINE_MARK then
    lists = call('ZRANGE', keys.line(string.sub(name, 2), priority, owner), 0, larger - 1)
    for i, job in ipairs(lists) do lists[i] = keys.refs(job) end
  end
  for _, list in ipairs(lists) do
    local length = call('LLEN', list)
    if length > 0 then tokens = tokens + admission.lane_tokens(list, length) end
  end
  return tokens
end

-- outstanding{fed, owners, larger} → {per version: {version, tokens in lanes, tokens in files, cores that hold it,
-- tokens of both that a pause of the version or of owners holds up}, tokens claimed by core, speeds by core, {version,
-- priority, age in ms of the oldest waiting job, 1 if a pause holds it up}…, open jobs by priority}
-- The oldest jobs are searched among `owners` owners of a priority and `larger` larger jobs of each. Tokens in files
-- are counted for `fed` jobs.
define('outstanding', function(ask)
  local versions, oldest, ages, open, left, paused = {}, {}, {}, {}, {}, read_paused()
  local held_up, goes_on = {}, {}
  local function hold_up(version, tokens) held_up[version] = (held_up[version] or 0) + tokens end
  local function note(version, priority, job, is_held_up)
    is_held_up = is_held_up or paused['model:' .. version]
    if not is_held_up then goes_on[version] = true end
    local still = is_held_up and 1 or 0
    local name = version .. ' ' .. priority .. ' ' .. still
    if job and (not oldest[name] or job < oldest[name][3]) then oldest[name] = { version, priority, job, still } end
  end
  for priority = 0, 2 do
    for _, owner in ipairs(call('ZRANGE', keys.shares(priority), 0, ask.owners - 1)) do
      for _, name in ipairs(call('SMEMBERS', keys.owner_lanes(priority, owner))) do
        local version, job = oldest_waiting(name, priority, owner, ask.larger)
        local is_held_up = paused['owner:' .. owner]
        if is_held_up then hold_up(version, tokens_of(name, priority, owner, ask.larger)) end
        note(version, priority, job, is_held_up)
      end
    end
    open[priority + 1] = call('SCARD', keys.open_jobs(priority))
  end
  for _, job in ipairs(jobs.first_fed(ask.fed)) do
    local version, status, fed = unpack(call('HMGET', keys.job(job), 'version', 'status', 'fed_tokens'))
    if is_open(status) and fed then
      local owner, tokens = jobs.unfed(job)
      left[version] = (left[version] or 0) + tokens
      if paused['owner:' .. owner] then hold_up(version, tokens) elseif tokens > 0 then note(version, 0) end
    end
  end
  for _, version in ipairs(call('HKEYS', keys.MODELS)) do
    local ref = parse(call('LINDEX', keys.returned(version), 0) or '')
    if ref and not paused['owner:' .. ref.owner] then note(version, ref.priority, ref.job) end
    local waiting, unfed = tonumber(call('HGET', keys.WAITING, version) or 0), left[version] or 0
    local is_whole = next(paused) and not goes_on[version]
    local still = is_whole and waiting + unfed or held_up[version] or 0
    versions[#versions + 1] = { version, waiting, unfed, holders_of(version), still }
  end
  for _, found in pairs(oldest) do
    local created, not_before = unpack(call('HMGET', keys.job(found[3]), 'created_ms', 'not_before_ms'))
    if created then ages[#ages + 1] = { found[1], found[2], now_ms() - jobs.due_ms(created, not_before), found[4] } end
  end
  return { versions, call('HGETALL', keys.HELD), call('HGETALL', keys.SPEEDS), ages, open }
end, 'no-writes')
