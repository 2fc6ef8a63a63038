-- Counters: what the functions did, counted in the step that does it, in the hash that has what processes measured as well.
-- A call's counts are written at its end, one command for each field that changed, however many slices the call was about.

local function count(field, amount)
  tally = tally or {}
  tally[field] = (tally[field] or 0) + amount
end

write_counts = function()
  for field, amount in pairs(tally) do
    if amount ~= 0 then call('HINCRBY', keys.METRICS, field, amount) end
  end
end

-- Add a time to a histogram, given as the field of its metric and labels. LATENCY holds {upper bound in ms, bucket}, ascending;
-- PRIORITIES the names of priorities.
local function observe_ms(series, ms)
  ms = math.max(ms, 0)
  local bucket = '|#inf'
  for _, bound in ipairs(LATENCY) do
    if ms <= bound[1] then
      bucket = bound[2]
      break
    end
  end
  count(series .. bucket, 1)
  count(series .. '|#ms', ms)
end

-- Count items that became final.
local function count_items(version, outcome, amount)
  count('corelane_items_total|' .. version .. '|' .. outcome, amount)
end

-- Count items that a core answered or lost, by the attempt at them.
local function count_attempt(ref)
  local attempt = tonumber(ref.attempt) < 9 and ref.attempt or '9+'
  count('corelane_attempts_total|' .. attempt, tonumber(ref.count))
end

-- Count a job that became final, its time, and whether it ended when it was promised. A promise is [position, tokens ahead,
-- expected, earliest, latest], the last three in ms after its submission, and null where no speed was known.
local PROMISE = '^%[%d+,%d+,%d+,(%d+),(%d+)%]$'
local function count_end(status, priority, promise, took_ms)
  count('corelane_jobs_ended_total|' .. status, 1)
  if status ~= 'succeeded' and status ~= 'failed' then return end
  observe_ms('corelane_job_seconds|' .. PRIORITIES[priority], took_ms)
  local earliest, latest = string.match(promise or '', PROMISE)
  if earliest then
    local outcome = took_ms < tonumber(earliest) and 'early' or took_ms > tonumber(latest) and 'late' or 'kept'
    count('corelane_promises_total|' .. outcome, 1)
  end
end

-- flush_metrics{process, number, facts, ttl_s, release, leaves, amounts: [field, amount…]}
-- What a process measured since its last flush. One that comes again, because its reply was lost, has the same number and
-- counts once. `facts` are fields that say what the process is and how it stands now. The first process of a release to
-- come after one of another is a deployment.
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
    local is_sum = string.sub(amounts[i], -5) == '|#sum'
    call(is_sum and 'HINCRBYFLOAT' or 'HINCRBY', keys.METRICS, amounts[i], amounts[i + 1])
  end
end, 'allow-oom')
