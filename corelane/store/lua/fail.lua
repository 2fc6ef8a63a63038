-- fail(job, ttl, error): what is answered stays, the rest fails for one reason, as JSON
local job, ttl, key = ARGV[1], tonumber(ARGV[2]), job_key(ARGV[1])
local status, left, ok = unpack(redis.call('HMGET', key, 'status', 'left', 'succeeded'))
if not is_open(status) then return 0 end
redis.call('HINCRBY', key, 'failed', left)
redis.call('HSET', key, 'left', 0, 'error', ARGV[3])
finish(job, tonumber(ok) > 0 and 'succeeded' or 'failed', ttl)
return 1
