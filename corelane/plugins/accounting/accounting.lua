-- Accounting: where a job's time went (`times` in its hash), and what work cost the cores, by job (`usage` in its hash) and by
-- day. A job of a version that kept no times has none, and gets none; one of a version that kept no usage has what was added
-- since.
--
-- `times`, read by `store.jobs.records`: `SUBMIT CREATED CLAIMED ENDED LAST;SUMS;CORES`, in microseconds: the time before it
-- was created, when that was, its first claim and its end after that (`-`: never), and the last trip. SUMS are over all cores:
-- see `Spent` in `corelane.domain.timing`.
-- `usage`: `ITEMS WINDOWS TOKENS;CORE_US PRICE`, with one more `;CORE_US PRICE` for each other price. A PRICE is the text of
-- `corelane.domain.prices`, or `-`. A day's hash has `OWNER|VERSION|PRICE`, `ITEMS WINDOWS TOKENS CORE_US`; the same as
-- `#lost|PRICE` for work that was thrown away; `#up|PRICE`, ms in which cores lived; and `#busy|PRICE`, microseconds that cores
-- count themselves as at work. A job's and a day's grow in the step that keeps results, so that their sums are the same.

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

-- The times of a job that ends. If a core's commit ended it, add what that core spent; what is left of the time since the core
-- sent its results is the trip.
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

-- Add to a job's usage, which may be nil.
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

-- Add to a row of today.
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

-- A core's call, with what it adds to jobs (`items`) and to the rows of the day.
local function with_sums(commit)
  commit.price, commit.items, commit.rows = commit.price or '-', commit.items or {}, commit.rows or {}
  return commit
end

-- The row that a commit adds to today's of an owner and version. Most commits have one.
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

-- What a commit adds to a job: the items of it that were answered here, and what the core spent. Both count once. → the
-- job's usage from now on, or nil if nothing is added
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

on('answer', function(job, stretch)
  local commit = stretch.commit and with_sums(stretch.commit)
  if commit then commit.items[job.id] = (commit.items[job.id] or 0) + stretch.succeeded + stretch.failed end
end)

on('finish', function(job, changes)
  if job.times then changes.times = ended_times(job, job.commit) end
  if job.commit then changes.usage = use(with_sums(job.commit), job.id, job.owner, job.version, job.usage) end
end, { 'owner', 'version', 'usage', 'times' })

-- Keep what a commit's core spent on jobs that go on; on jobs that were over before, by their owners in `late`, who pay for
-- it; and work that is not charged. Then write the rows of the day.
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

-- Note with a heartbeat how long a core has lived and worked since the last one. `worked_us` grows while its process lives; of
-- a new process all of it is new, and the time before its first heartbeat is not counted.
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

-- Forget the days before the last ones.
on('prune', function(_, ask)
  local first_day = this_day() - ask.usage_days
  for _, day in ipairs(call('ZRANGEBYSCORE', keys.USAGE_DAYS, '-inf', '(' .. first_day, 'LIMIT', 0, ask.most)) do
    call('UNLINK', keys.usage(day))
    call('ZREM', keys.USAGE_DAYS, day)
  end
end)
