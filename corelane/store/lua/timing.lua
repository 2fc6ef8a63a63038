-- Where a job's time went: one text in its hash (`times`), written at each of its steps, read by `store.jobs.records`.
-- `SUBMIT CREATED CLAIMED ENDED LAST;SUMS;CORES`, in microseconds: the time before it was created, when that was, its first
-- claim and its end after that (`-`: never), and the last trip. SUMS are over all cores: see `Spent` in workers.core.timing.
-- A job of a version that kept no times has none, and gets none.

-- A job that thousands of cores worked on names the first of them.
local MOST_CORES_BYTES = 4000

on('submit', function(job, ask) job.fields.times = string.format('%.0f %.0f', ask.submit_us, now_us()) end)

local function after_created(times) return now_us() - string.match(times, '^%d+ (%d+)') end

on('claim', function(job, changes)
  if job.times then changes.times = string.format('%s %.0f', job.times, math.max(0, after_created(job.times))) end
end, { 'times' })

-- Add what a core spent on a job: the first seven of its sums. Numbers below 10^14 are written whole.
local SUMS = '^([^;]*);(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+);(.*)$'
function timing.add_spent(times, spent, core)
  local head, a, b, c, d, e, f, g, cores = string.match(times, SUMS)
  if not head then return times .. ';' .. table.concat(spent, ' ', 1, 7) .. ';' .. core end
  if not string.find(' ' .. cores .. ' ', ' ' .. core .. ' ', 1, true) and #cores < MOST_CORES_BYTES then
    cores = cores .. ' ' .. core
  end
  return table.concat({ head .. ';' .. a + spent[1], b + spent[2], c + spent[3], d + spent[4], e + spent[5], f + spent[6],
    g + spent[7] .. ';' .. cores }, ' ')
end

-- Note a job's end. If a core's commit ended it, add what that core spent; what is left of the time since the core sent its
-- results is the trip.
on('finish', function(job, changes)
  local times, commit = job.times, job.commit
  if not times then return end
  local spent, sent_us = commit and commit.spent[job.id], commit and commit.sent_us
  if spent then times = timing.add_spent(times, spent, commit.core) end
  local head, sums = string.match(times, '^([^;]*)(.*)$')
  local claimed = string.match(head, '^%d+ %d+ (%d+)')
  local ended = math.max(claimed or 0, after_created(times))
  local trip = sent_us and claimed and math.max(0, math.min(now_us() - sent_us, ended - claimed)) or 0
  changes.times = string.format('%s%s %.0f %.0f%s', head, claimed and '' or ' -', ended, trip, sums)
end, { 'times' })

-- Note when the webhook of a job's end was delivered, if the job is still there.
on('delivered', function(delivery, now)
  local event, subject, at = unpack(call('HMGET', delivery, 'event', 'subject', 'at_ms'))
  local key = keys.job(subject)
  if event == 'job.completed' and call('HEXISTS', key, 'times') == 1 then
    call('HSETNX', key, 'deliver_ms', now - at)
  end
end)
