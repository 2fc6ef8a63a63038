-- Accounting: where a job's time went (`times` in its hash); what work cost, by job (`usage` in its hash) and by day.
-- A job of a release that kept no `times` gets none. A job of a release that kept no `usage` has what was added since.
--
-- `times`, read by `store.jobs.records`, is `SUBMIT CREATED CLAIMED ENDED LAST;SUMS;CORES`, in microseconds. SUBMIT is
-- the time before the job was created, CREATED when that was. CLAIMED (`-`: never) and ENDED count from CREATED. LAST
-- is the last trip. SUMS are over all cores: see `Spent` in `corelane.domain.timing`.
-- `usage` is `ITEMS WINDOWS TOKENS;CORE_US PRICE`, with one more `;CORE_US PRICE` for each other price. PRICE is the
-- text of `corelane.domain.prices`, or `-`. A day's hash has rows `OWNER|VERSION|PRICE` with `ITEMS WINDOWS TOKENS
-- CORE_US`; such a row `#lost|PRICE` for discarded work; in `#up|PRICE` the ms that cores lived; and in `#busy|PRICE`
-- the microseconds that they worked. The step that keeps results adds to job and day, so that both have equal sums.

-- A job that thousands of cores worked on names the first of them.
local MOST_CORES_BYTES = 4000

on('submit', function(job, ask) job.fields.times = string.format('%.0f %.0f', ask.submit_us, now_us()) end)

local function after_created(times) return now_us() - string.match(times, '^%d+ (%d+)') end

on('claim', function(job, changes)
  if job.times then changes.times = string.format('%s %.0f', job.times, math.max(0, after_created(job.times))) end
end, { 'times' })

-- Add what a core spent on a job: the first seven of its sums. Numbers below 10^14 are written whole.
local SUMS = '^([^;]*);(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+);(.*)$'
local function add_spent(times, spent, core)
  local head, a, b, c, d, e, f, g, cores = string.match(times, SUMS)
  if not head then return times .. ';' .. table.concat(spent, ' ', 1, 7) .. ';' .. core end
  if not string.find(' ' .. cores .. ' ', ' ' .. core .. ' ', 1, true) and #cores < MOST_CORES_BYTES then
    cores = cores .. ' ' .. core
  end
  return table.concat({ head .. ';' .. a + spent[1], b + spent[2], c + spent[3], d + spent[4], e + spent[5], f + spent[6],
    g + spent[7] .. ';' .. cores }, ' ')
end

-- Return the times of a job that ends. If a core's commit ended it, add what that core spent, and as the trip the time
-- since the core sent its results.
local function ended_times(job, commit)
  local times = job.times
  local spent, sent_us = commit and commit.spent[job.id], commit and commit.sent_us
  if spent then times = add_spent(times, spent, commit.core) end
  local head, sums = string.match(times, '^([^;]*)(.*)$')
  local claimed = string.match(head, '^%d+ %d+ (%d+)')
  local ended = math.max(claimed or 0, after_created(times))
  local trip = sent_us and claimed and math.max(0, math.min(now_us() - sent_us, ended - claimed)) or 0
  return string.format('%s%s %.0f %.0f%s', head, claimed and '' or ' -', ended, trip, sums)
end

-- Note when the webhook of a job's end was delivered, if the job is still there.
on('delivered', function(delivery, now)
  local event, subject, at = unpack(call('HMGET', delivery, 'event', 'subject', 'at_ms'))
  local key = keys.job(subject)
  if event == 'job.completed' and call('HEXISTS', key, 'times') == 1 then
    call('HSETNX', key, 'deliver_ms', now - at)
  end
end)

local DAY_MS = 86400000
local function this_day() return math.floor(now_ms() / DAY_MS) end

-- Return a job's usage `text`, which may be nil, with these numbers added.
local ONE_PRICE, SEVERAL = '^(%d+) (%d+) (%d+);(%d+) ([^; ]+)$', '^(%d+) (%d+) (%d+)(.*)$'
local function add_used(text, items, windows, tokens, us, price)
  if not text then return string.format('%d %d %d;%d %s', items, windows, tokens, us, price) end
  local a, b, c, before, its_price = string.match(text, ONE_PRICE)
  if its_price == price then
    return string.format('%d %d %d;%d %s', a + items, b + windows, c + tokens, before + us, price)
  end
  local found, rest = false, nil
  a, b, c, rest = string.match(text, SEVERAL)
  rest = string.gsub(rest, ';(%d+) ([^;]+)', function(its_us, other)
    if other ~= price then return nil end
    found = true
    return string.format(';%d %s', its_us + us, price)
  end)
  if not found then rest = rest .. string.format(';%d %s', us, price) end
  return string.format('%d %d %d%s', a + items, b + windows, c + tokens, rest)
end

-- Add `used` to the row `name` of today.
local function add_row(name, used)
  local day = keys.usage(this_day())
  local text = call('HGET', day, name) or '0 0 0 0'
  local items, windows, tokens, us = string.match(text, '^(%d+) (%d+) (%d+) (%d+)$')
  items, windows, tokens, us = items + used[1], windows + used[2], tokens + used[3], us + used[4]
  call('HSET', day, name, string.format('%d %d %d %d', items, windows, tokens, us))
end

-- Add work that was thrown away: windows, tokens and core microseconds, or nothing.
local function add_lost(lost, price)
  if lost[1] then add_row('#lost|' .. price, { 0, lost[1], lost[2], lost[3] }) end
end

-- Return a core's call with places for what it adds to jobs (`items`) and to the rows of the day (`rows`).
local function with_sums(commit)
  commit.price, commit.items, commit.rows = commit.price or '-', commit.items or {}, commit.rows or {}
  return commit
end

-- Return the row of what a commit adds for an owner and a version. Most commits have one row.
local function row_of(commit, owner, version)
  local row = commit.row
  if row and row.owner == owner and row.version == version then return row end
  local name = owner .. '|' .. version .. '|' .. commit.price
  row = commit.rows[name]
  if not row then
    row = { 0, 0, 0, 0, owner = owner, version = version }
    commit.rows[name] = row
  end
  commit.row = row
  return row
end

-- Count for a job, once, the items that this commit answered, and what the core spent on it.
-- → the job's usage from now on, or nil if nothing is added
local function use(commit, job, owner, version, text)
  local spent, items = commit.spent[job], commit.items[job]
  if not spent and not items then return nil end
  commit.spent[job], commit.items[job] = nil, nil
  local row, windows, tokens, us = row_of(commit, owner, version), 0, 0, 0
  if spent then windows, tokens, us = spent[8] or 0, spent[9] or 0, spent[7] end
  items = items or 0
  row[1], row[2], row[3], row[4] = row[1] + items, row[2] + windows, row[3] + tokens, row[4] + us
  return add_used(text, items, windows, tokens, us, commit.price)
end

on('settle', function(job, stretch)
  local commit = stretch.commit and with_sums(stretch.commit)
  if commit then commit.items[job.id] = (commit.items[job.id] or 0) + stretch.succeeded + stretch.failed end
end)

on('finish', function(job, changes)
  if job.times then changes.times = ended_times(job, job.commit) end
  if job.commit then changes.usage = use(with_sums(job.commit), job.id, job.owner, job.version, job.usage) end
end, { 'owner', 'version', 'usage', 'times' })

-- Keep what a commit's core spent on jobs that continue, and on jobs that had ended, whose owners (`late`) pay for it.
-- The rest is work that is not charged. Then write the rows of the day.
on('spend', function(commit, answered, late)
  with_sums(commit)
  for job, wanted in pairs(answered) do
    local spent = commit.spent[job]
    if wanted and (spent or commit.items[job]) then
      local key = keys.job(job)
      local times, text, owner, version = unpack(call('HMGET', key, 'times', 'usage', 'owner', 'version'))
      local used = use(commit, job, owner, version, text)
      if times and spent then
        call('HSET', key, 'usage', used, 'times', add_spent(times, spent, commit.core))
      else
        call('HSET', key, 'usage', used)
      end
    end
  end
  for job, spent in pairs(commit.spent) do
    if late[job] then
      waste(reason_of(job), spent[9] or 0)
      local text, version = unpack(call('HMGET', keys.job(job), 'usage', 'version'))
      local used = use(commit, job, late[job], version or '-', text)
      if version then call('HSET', keys.job(job), 'usage', used) end
    else
      add_lost({ spent[8] or 0, spent[9] or 0, spent[7] }, commit.price)
    end
  end
  for name, used in pairs(commit.rows) do add_row(name, used) end
  if commit.lost then add_lost(commit.lost, commit.price) end
end)

-- Note how long a core has lived and worked since its last heartbeat. `worked_us` counts from the start of its process.
-- So all of it is new if the process is new. The life of a process before its first heartbeat is not counted.
on('beat', function(ask)
  if not ask.worked then return end
  local core, now, day = ask.core, now_ms(), this_day()
  local process, price, worked_us = unpack(ask.worked)
  local before, at, us = string.match(call('HGET', keys.WORKED, core) or '', '^(%S+) (%d+) (%d+)$')
  call('HSET', keys.WORKED, core, string.format('%s %.0f %.0f', process, now, worked_us))
  call('ZADD', keys.USAGE_DAYS, day, day)
  local is_same = before == process
  if is_same then call('HINCRBY', keys.usage(day), '#up|' .. price, math.max(0, now - at)) end
  local more = is_same and worked_us - us or before and worked_us or 0
  if more > 0 then call('HINCRBY', keys.usage(day), '#busy|' .. price, string.format('%.0f', more)) end
end)

-- Forget the usage of the days before the last `usage_days`.
on('prune', function(_, ask)
  local first_day = this_day() - ask.usage_days
  for _, day in ipairs(call('ZRANGEBYSCORE', keys.USAGE_DAYS, '-inf', '(' .. first_day, 'LIMIT', 0, ask.most)) do
    call('UNLINK', keys.usage(day))
    call('ZREM', keys.USAGE_DAYS, day)
  end
end)
