-- submit(job, version, envelope, expires_in_ms, n, n × (field, value), ref…) → {1 if new, created_ms, expires_ms or nil}
-- The job, its refs in the lanes and the bells, in one step. The payloads were written just before.
local job, version, envelope, expires_in_ms, n = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])
local key = job_key(job)
if redis.call('EXISTS', key) == 1 then
  return { 0, unpack(redis.call('HMGET', key, 'created_ms', 'expires_ms')) }
end
if redis.call('PERSIST', in_key(job)) == 0 then
  return redis.error_reply('PAYLOADGONE the payloads of this job expired before it was submitted')
end
local now = now_ms()
redis.call('HSET', key, 'status', 'queued', 'version', version, 'created_ms', now,
  'succeeded', 0, 'failed', 0, 'canceled', 0, 'expired', 0, unpack(ARGV, 6, 5 + 2 * n))
if expires_in_ms > 0 then
  redis.call('HSET', key, 'expires_ms', now + expires_in_ms)
  redis.call('ZADD', 'cl:expiring', now + expires_in_ms, job)
end
local refs = {}
for i = 6 + 2 * n, #ARGV do refs[#refs + 1] = ARGV[i] end
route(version, refs, envelope, false)
return { 1, now, expires_in_ms > 0 and now + expires_in_ms or false }
