-- cancel(job, ttl) → 1 if canceled now, 0 if it was final already, -1 if there is no such job
local job, ttl = ARGV[1], tonumber(ARGV[2])
local status, left = unpack(redis.call('HMGET', job_key(job), 'status', 'left'))
if not status then return -1 end
if not is_open(status) then return 0 end
redis.call('HSET', job_key(job), 'canceled', left, 'left', 0)
finish(job, 'canceled', ttl)
return 1
