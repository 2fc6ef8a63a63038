-- submit(job, version, envelope, n, n × (field, value), ref…) → {1 if new, created_ms}
-- The job, its refs in the lanes and the bells, in one step. The payloads were written just before.
local job, version, envelope, n = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local key = job_key(job)
if redis.call('EXISTS', key) == 1 then
  return { 0, redis.call('HGET', key, 'created_ms') }
end
if redis.call('PERSIST', in_key(job)) == 0 then
  return redis.error_reply('PAYLOADGONE the payloads of this job expired before it was submitted')
end
local now = now_ms()
redis.call('HSET', key, 'status', 'queued', 'version', version, 'created_ms', now,
  'succeeded', 0, 'failed', 0, 'canceled', 0, 'expired', 0, unpack(ARGV, 5, 4 + 2 * n))
local refs = {}
for i = 5 + 2 * n, #ARGV do refs[#refs + 1] = ARGV[i] end
route(version, refs, envelope, false)
return { 1, now }
