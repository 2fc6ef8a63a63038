-- Gauges: how the work stands that is not done.

-- Items of open jobs that are not final; -1 where there are more than `most` jobs.
local function sum_open_items(most)
  local open, items = 0, 0
  for priority = 0, 2 do open = open + call('SCARD', keys.open_jobs(priority)) end
  if open > most then return -1 end
  for priority = 0, 2 do
    for _, job in ipairs(call('SMEMBERS', keys.open_jobs(priority))) do
      items = items + tonumber(call('HGET', keys.job(job), 'left') or 0)
    end
  end
  return items
end

-- The oldest job with refs in an owner's lane or line, which is the least of their ids.
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

-- outstanding{jobs, owners, larger} → {per version: {version, tokens in lanes, tokens in files, cores that hold it}, tokens
--   claimed by core, speeds by core, {version, priority, age in ms of the oldest job that waits}…, open jobs by priority,
--   open items or -1 with more than `jobs` jobs}
-- The oldest are looked for among `owners` owners of a priority and `larger` larger jobs of each.
define('outstanding', function(ask)
  local versions, oldest, ages, open, left = {}, {}, {}, {}, {}
  local function note(version, priority, job)
    local name = version .. ' ' .. priority
    if job and (not oldest[name] or job < oldest[name][3]) then oldest[name] = { version, priority, job } end
  end
  for priority = 0, 2 do
    for _, owner in ipairs(call('ZRANGE', keys.shares(priority), 0, ask.owners - 1)) do
      for _, name in ipairs(call('SMEMBERS', keys.owner_lanes(priority, owner))) do
        local version, job = oldest_waiting(name, priority, owner, ask.larger)
        note(version, priority, job)
      end
    end
    open[priority + 1] = call('SCARD', keys.open_jobs(priority))
  end
  for _, job in ipairs(jobs.first_fed(ask.jobs)) do
    local version, status, tokens, fed = unpack(call('HMGET', keys.job(job), 'version', 'status', 'file_tokens', 'fed_tokens'))
    if is_open(status) and fed then left[version] = (left[version] or 0) + tonumber(tokens) - tonumber(fed) end
  end
  for _, version in ipairs(call('HKEYS', keys.MODELS)) do
    local ref = parse(call('LINDEX', keys.returned(version), 0) or '')
    if ref then note(version, ref.priority, ref.job) end
    versions[#versions + 1] =
      { version, call('HGET', keys.WAITING, version) or 0, left[version] or 0, holders_of(version) }
  end
  for _, found in pairs(oldest) do
    local created = call('HGET', keys.job(found[3]), 'created_ms')
    if created then ages[#ages + 1] = { found[1], found[2], now_ms() - tonumber(created) } end
  end
  return { versions, call('HGETALL', keys.HELD), call('HGETALL', keys.SPEEDS), ages, open, sum_open_items(ask.jobs) }
end, 'no-writes')

-- mend_open_items{jobs}: what the counters of items are off by, so that their difference tells the open items where there
-- are too many jobs to look at. They are off after an upgrade under load: the version before does not count.
define('mend_open_items', function(ask)
  local items = sum_open_items(ask.jobs)
  if items < 0 then return end
  local all, off = call('HGETALL', keys.METRICS), -items
  for i = 1, #all, 2 do
    if string.find(all[i], '^corelane_items_submitted_total|') then off = off + all[i + 1] end
    if string.find(all[i], '^corelane_items_total|') then off = off - all[i + 1] end
  end
  if off ~= tonumber(call('HGET', keys.METRICS, 'open_items_off') or 0) then
    call('HSET', keys.METRICS, 'open_items_off', off)
  end
end, 'allow-oom')
