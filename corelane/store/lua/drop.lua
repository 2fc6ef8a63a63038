-- drop(job, before, n, n × first, index…) → index of the first result kept; 0 if there is no such job
-- Forgets stored results that the caller has: those of the stretches with these first items, all of them before the index.
-- Of the items with the further indexes it is remembered that they failed, for a retry.
local job, before, n = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
if redis.call('EXISTS', job_key(job)) == 0 then return 0 end
local dropped = tonumber(redis.call('HGET', job_key(job), 'dropped') or 0)
if before <= dropped then return dropped end
for i = 4, 3 + n, 1000 do
  redis.call('HDEL', out_key(job), unpack(ARGV, i, math.min(i + 999, 3 + n)))
end
for i = 4 + n, #ARGV do redis.call('SETBIT', dropped_key(job), ARGV[i], 1) end
local left_ms = redis.call('PTTL', job_key(job))
if left_ms > 0 then redis.call('PEXPIRE', dropped_key(job), left_ms) end
redis.call('HSET', job_key(job), 'dropped', before)
return before
