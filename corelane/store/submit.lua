-- submit(job, version, envelope, expires_in_ms, file, file_tokens, n, n × (field, value), ref…) → {1 if new, created_ms, expires_ms or nil}
-- The job, its refs in the lanes and the bells, in one step. The payloads were written just before, or stand in a file
-- from which the keeper feeds them. A version that was closed since the job was admitted takes it no more.
local job, version, envelope, expires_in_ms = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local file, file_tokens, n, key = ARGV[5], ARGV[6], tonumber(ARGV[7]), job_key(ARGV[1])
if redis.call('EXISTS', key) == 1 then
  return { 0, unpack(redis.call('HMGET', key, 'created_ms', 'expires_ms')) }
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
  'succeeded', 0, 'failed', 0, 'canceled', 0, 'expired', 0, unpack(ARGV, 8, 7 + 2 * n))
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
redis.call('SADD', 'cl:open:' .. redis.call('HGET', key, 'priority'), job)
local refs = {}
for i = 8 + 2 * n, #ARGV do refs[#refs + 1] = ARGV[i] end
enqueue(version, refs, envelope, false)
return { 1, now, expires_in_ms > 0 and now + expires_in_ms or false }
