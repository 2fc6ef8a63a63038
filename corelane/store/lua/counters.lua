-- Counters: the functions count what they do in the same step, in the hash that also has what processes measured. A
-- call's counts are written at its end, one command for each changed field, however many slices the call had.

-- Count something. A field is a series (metric and labels), in a histogram followed by a bucket.
local function count(series, bucket, amount)
  if amount == 0 then return end
  tally = tally or {}
  local found = tally[series]
  if not found then
    found = {}
    tally[series] = found
  end
  found[bucket] = (found[bucket] or 0) + amount
end

write_counts = function()
  for series, buckets in pairs(tally) do
    for bucket, amount in pairs(buckets) do call('HINCRBY', keys.METRICS, series .. bucket, amount) end
  end
end

-- Add a time in ms to a histogram. LATENCY_MS are the upper bounds of its buckets, LATENCY their names and one for the
-- rest.
local function observe_ms(series, ms)
  ms = math.max(ms, 0)
  local low, high = 1, #LATENCY_MS + 1
  while low < high do
    local middle = math.floor((low + high) / 2)
    if ms <= LATENCY_MS[middle] then high = middle else low = middle + 1 end
  end
  count(series, LATENCY[low], 1)
  count(series, '|#ms', ms)
end

-- The series of a metric by priority.
local function by_priority(metric)
  return { ['0'] = metric .. PRIORITIES['0'], ['1'] = metric .. PRIORITIES['1'], ['2'] = metric .. PRIORITIES['2'] }
end
local WAIT_SERIES, JOB_SERIES = by_priority('corelane_wait_seconds|'), by_priority('corelane_job_seconds|')

-- Count items that became final.
local function count_items(version, outcome, amount)
  if amount ~= 0 then count('corelane_items_total|' .. version, outcome, amount) end
end

-- Count items that a core answered or lost, by the number of the attempt.
local function count_attempt(ref)
  count('corelane_attempts_total|', tonumber(ref.attempt) < 9 and ref.attempt or '9+', tonumber(ref.count))
end

-- Count tokens that were read in vain, by reason. `core_lost`: held by a core that died, froze or was cut off, whether
-- read or not. `handed_back`: by a core that was stopped. Otherwise the tokens were read for a job that was over by
-- then.
local function waste(reason, tokens) count('corelane_wasted_tokens_total|', reason, tokens) end

local function reason_of(job)
  local status = call('HGET', keys.job(job), 'status')
  return (status == 'canceled' or status == 'expired') and status or 'over'
end

-- Count a job that became final, and its time.
local function count_end(status, priority, took_ms)
  count('corelane_jobs_ended_total|', status, 1)
  if status == 'succeeded' or status == 'failed' then observe_ms(JOB_SERIES[priority], took_ms) end
end

-- flush_metrics{process, number, facts, ttl_s, release, leaves, amounts: [field, amount…]}
-- Adds what a process measured since its last flush. A flush that is repeated because its reply was lost has the same
-- number and counts once. `facts` are fields that describe the process and its present state. A new process of
-- another release than the process before marks a deployment in the history.
define('flush_metrics', function(ask)
  local key, amounts = keys.process(ask.process), ask.amounts
  local number = tonumber(call('HGET', key, 'number') or 0)
  if call('EXISTS', key) == 0 and call('SET', keys.RELEASE, ask.release, 'GET') ~= ask.release then mark('deploy', ask.release) end
  call('HSET', key, 'number', math.max(number, ask.number), unpack(ask.facts))
  call('EXPIRE', key, ask.ttl_s)
  if ask.leaves then
    call('ZREM', keys.PROCESSES, ask.process)
  else
    call('ZADD', keys.PROCESSES, now_ms(), ask.process)
    call('ZREMRANGEBYSCORE', keys.PROCESSES, '-inf', now_ms() - 1000 * ask.ttl_s)
    call('EXPIRE', keys.PROCESSES, ask.ttl_s)
  end
  if ask.number <= number then return end
  for i = 1, #amounts, 2 do
    local is_sum = string.sub(amounts[i], -5) == '|#sum' or string.find(amounts[i], '_seconds_total|', 1, true)
    call(is_sum and 'HINCRBYFLOAT' or 'HINCRBY', keys.METRICS, amounts[i], amounts[i + 1])
  end
end)
