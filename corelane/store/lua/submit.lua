-- submit(job, version, envelope, expires_in_ms, file, file_tokens, once, fingerprint, once_ttl_s, n, n × (field, value), ref…)
--   → {1 if new, created_ms, expires_ms or nil} or {-1, `JOB FINGERPRINT` of the holder of `once`}
-- The job, its refs in the lanes and the bells, in one step. The payloads were written just before, or stand in a file
-- from which the keeper feeds them. A version that was closed since the job was admitted takes it no more. `once`, if not
-- empty, is a key that one job may hold: for so many seconds, or with 0 for as long as the job is kept.
local job, version, envelope, expires_in_ms = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local file, file_tokens, once, once_ttl_s = ARGV[5], ARGV[6], ARGV[7], tonumber(ARGV[9])
local n, key = tonumber(ARGV[10]), job_key(ARGV[1])
if redis.call('EXISTS', key) == 1 then
  return { 0, unpack(redis.call('HMGET', key, 'created_ms', 'expires_ms')) }
end
local holder = once ~= '' and redis.call('GET', once)
if holder and (once_ttl_s > 0 or redis.call('EXISTS', job_key(string.match(holder, '^%S+'))) == 1) then
  return { -1, holder }
end
if redis.call('HEXISTS', 'cl:closed', version) == 1 then
  return redis.error_reply('VERSIONCLOSED ' .. version .. ' takes no more jobs')
end
if file == '' and redis.call('PERSIST', in_key(job)) == 0 then
  return redis.error_reply('PAYLOADGONE the payloads of this job expired before it was submitted')
end
redis.call('PERSIST', contexts_key(job))
local now = now_ms()
redis.call('HSET', key, 'status', 'queued', 'version', version, 'created_ms', now,
  'succeeded', 0, 'failed', 0, 'canceled', 0, 'expired', 0, unpack(ARGV, 11, 10 + 2 * n))
local owner, priority = unpack(redis.call('HMGET', key, 'owner', 'priority'))
redis.call('ZADD', 'cl:index:' .. owner, 0, job)
if once ~= '' then
  redis.call('SET', once, job .. ' ' .. ARGV[8])
  if once_ttl_s > 0 then redis.call('EXPIRE', once, once_ttl_s) else redis.call('HSET', key, 'once', once) end
end
if expires_in_ms > 0 then
  redis.call('HSET', key, 'expires_ms', now + expires_in_ms)
  redis.call('ZADD', 'cl:expiring', now + expires_in_ms, job)
end
if file ~= '' then
  redis.call('HSET', key, 'file', file, 'file_tokens', file_tokens, 'fed', 0, 'fed_bytes', 0, 'fed_tokens', 0)
  local account, tokens = unfed(job)
  add('cl:unfed', account, tokens)
  redis.call('ZADD', 'cl:feeds', now, job)
end
redis.call('HINCRBY', 'cl:jobs', version, 1)
redis.call('SADD', 'cl:open:' .. priority, job)
local refs = {}
for i = 11 + 2 * n, #ARGV do refs[#refs + 1] = ARGV[i] end
enqueue(version, refs, envelope, false)
return { 1, now, expires_in_ms > 0 and now + expires_in_ms or false }
