-- delete(job, ttl) → 1 if deleted, 0 if there is no such job
-- Cancels it first if it is open, so that whoever waits is told; then nothing is left of it. Refs of it that still wait
-- are passed over like those of any job that wants no answer; its file, if it has one, is the feeder's to remove.
local job, key = ARGV[1], job_key(ARGV[1])
local status, left, owner, once, file = unpack(redis.call('HMGET', key, 'status', 'left', 'owner', 'once', 'file'))
if not status then return 0 end
if is_open(status) then
  redis.call('HSET', key, 'canceled', left, 'left', 0)
  finish(job, 'canceled', tonumber(ARGV[2]))
end
if once and string.match(redis.call('GET', once) or '', '^%S+') == job then redis.call('DEL', once) end
if file then redis.call('ZADD', 'cl:feeds', now_ms(), job) end
redis.call('ZREM', 'cl:index:' .. owner, job)
redis.call('ZREM', 'cl:keeping', owner .. ':' .. job .. (file and ':file' or ''))
forget_deliveries(job)
redis.call('UNLINK', key, in_key(job), contexts_key(job), out_key(job), dropped_key(job), story_key(job))
return 1
