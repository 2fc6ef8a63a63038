-- Where a job's time went: one text in its hash (`times`), written at each of its steps, read by `store.jobs.records`.
-- `SUBMIT CREATED CLAIMED ENDED LAST;SUMS;CORES`, in microseconds: the time before it was created, when that was, its first
-- claim and its end after that (`-`: never), and the last trip. SUMS are over all cores: see `Spent` in workers.core.timing.
-- A job of a version that kept no times has none, and gets none.

-- A job that thousands of cores worked on names the first of them.
local MOST_CORES_BYTES = 4000

local function new_times(submit_us) return string.format('%.0f %.0f', submit_us, now_us()) end

local function after_created(times) return now_us() - string.match(times, '^%d+ (%d+)') end

-- Note a job's first claim.
local function claimed_times(times) return string.format('%s %.0f', times, math.max(0, after_created(times))) end

-- Add what a core spent on a job.
local function add_spent(times, spent, core)
  local head, sums, cores = string.match(times, '^([^;]*);?([^;]*);?([^;]*)$')
  if sums == '' then
    sums = table.concat(spent, ' ')
  else
    local place = 0
    sums = string.gsub(sums, '%d+', function(sum)
      place = place + 1
      return string.format('%.0f', sum + (spent[place] or 0))
    end)
  end
  if not string.find(' ' .. cores .. ' ', ' ' .. core .. ' ', 1, true) and #cores < MOST_CORES_BYTES then
    cores = cores == '' and core or cores .. ' ' .. core
  end
  return head .. ';' .. sums .. ';' .. cores
end

-- Note a job's end. If a core's results ended it, `sent_us` is when the core sent them: the rest is the trip.
local function ended_times(times, sent_us)
  local head, sums = string.match(times, '^([^;]*)(.*)$')
  local claimed = string.match(head, '^%d+ %d+ (%d+)')
  local ended = math.max(claimed or 0, after_created(times))
  local trip = sent_us and claimed and math.max(0, math.min(now_us() - sent_us, ended - claimed)) or 0
  return string.format('%s%s %.0f %.0f%s', head, claimed and '' or ' -', ended, trip, sums)
end

-- Add what a core spent on jobs that go on.
local function keep_spent(spent, core, jobs)
  for job in pairs(jobs) do
    local key = keys.job(job)
    local times, status = unpack(call('HMGET', key, 'times', 'status'))
    if times and spent[job] and is_open(status) then call('HSET', key, 'times', add_spent(times, spent[job], core)) end
  end
end

-- Note when the webhook of a job's end was delivered, if the job is still there.
local function note_delivered(delivery, now)
  local event, subject, at = unpack(call('HMGET', delivery, 'event', 'subject', 'at_ms'))
  local key = keys.job(subject)
  if event == 'job.completed' and call('HEXISTS', key, 'times') == 1 then
    call('HSETNX', key, 'deliver_ms', now - at)
  end
end
