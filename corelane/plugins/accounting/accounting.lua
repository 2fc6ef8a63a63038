-- Usage: `ITEMS TOKENS CORE_US`, of a job in its hash (`usage`), and of a day in rows `OWNER|VERSION` of the day's hash.
-- The step that keeps results adds to job and day, so that both have equal sums. Work that is thrown away is no usage.

local function this_day() return math.floor(now_ms() / 86400000) end

local function add_used(text, items, tokens, us)
  local a, b, c = string.match(text or '0 0 0', '^(%d+) (%d+) (%d+)$')
  return string.format('%d %d %d', a + items, b + tokens, c + us)
end

-- Count for a job, once, the items that this commit answered, and the tokens and core microseconds that its core spent
-- on it (`commit.spent`). Most commits have one row of the day.
-- → the job's usage from now on, or nil if nothing is added
local function use(commit, job, owner, version, text)
  local spent, items = commit.spent[job], commit.items and commit.items[job]
  if not spent and not items then return nil end
  commit.spent[job] = nil
  if items then commit.items[job] = nil end
  local tokens, us = 0, 0
  if spent then tokens, us = spent[1], spent[2] end
  items = items or 0
  local name = owner .. '|' .. version
  commit.rows = commit.rows or {}
  local row = commit.rows[name] or { 0, 0, 0 }
  commit.rows[name] = row
  row[1], row[2], row[3] = row[1] + items, row[2] + tokens, row[3] + us
  return add_used(text, items, tokens, us)
end

on('settle', function(job, slice)
  local commit = slice.commit
  if not commit then return end
  commit.items = commit.items or {}
  commit.items[job.id] = (commit.items[job.id] or 0) + slice.succeeded + slice.failed
end)

on('finish', function(job, changes)
  if job.commit then changes.usage = use(job.commit, job.id, job.owner, job.version, job.usage) end
end, { 'owner', 'version', 'usage' })

-- Keep what a commit's core spent on jobs that continue, and on jobs that had ended, whose owners (`late`) use it. Then
-- write the rows of the day.
on('spend', function(commit, answered, late)
  for job, wanted in pairs(answered) do
    if wanted and (commit.spent[job] or commit.items and commit.items[job]) then
      local key = keys.job(job)
      local text, owner, version = unpack(call('HMGET', key, 'usage', 'owner', 'version'))
      call('HSET', key, 'usage', use(commit, job, owner, version, text))
    end
  end
  for job, owner in pairs(late) do
    local spent = commit.spent[job]
    if spent then
      waste(reason_of(job), spent[1])
      local text, version = unpack(call('HMGET', keys.job(job), 'usage', 'version'))
      local used = use(commit, job, owner, version or '-', text)
      if version then call('HSET', keys.job(job), 'usage', used) end
    end
  end
  if not commit.rows then return end
  local day = this_day()
  for name, row in pairs(commit.rows) do
    local text = call('HGET', keys.usage(day), name)
    call('HSET', keys.usage(day), name, add_used(text, row[1], row[2], row[3]))
    if not text then call('ZADD', keys.USAGE_DAYS, day, day) end
  end
end)

-- Forget the usage of days that are over for longer: a year, and a month to look back.
local KEPT_DAYS = 400
on('prune', function(_, ask)
  local first_day = this_day() - KEPT_DAYS
  for _, day in ipairs(call('ZRANGEBYSCORE', keys.USAGE_DAYS, '-inf', '(' .. first_day, 'LIMIT', 0, ask.most)) do
    call('UNLINK', keys.usage(day))
    call('ZREM', keys.USAGE_DAYS, day)
  end
end)
