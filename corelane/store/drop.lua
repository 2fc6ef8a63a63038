-- drop(job, before, first…) → index of the first result kept
-- Forgets stored results that the caller has; `first…` are the stretches they stand in, all of them before the index.
local job, before = ARGV[1], tonumber(ARGV[2])
local dropped = tonumber(redis.call('HGET', job_key(job), 'dropped') or 0)
if before <= dropped then return dropped end
for i = 3, #ARGV, 1000 do
  redis.call('HDEL', out_key(job), unpack(ARGV, i, math.min(i + 999, #ARGV)))
end
redis.call('HSET', job_key(job), 'dropped', before)
return before
