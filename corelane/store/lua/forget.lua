-- forget(gone_ttl_s, most) → jobs forgotten
-- Clears up after jobs that are not kept any longer: out of their owners' lists, remembered as gone for a while.
local gone_ttl_s, forgotten = tonumber(ARGV[1]), 0
for _, kept in ipairs(redis.call('ZRANGEBYSCORE', 'cl:keeping', '-inf', now_ms(), 'LIMIT', 0, ARGV[2])) do
  local owner, job, file = string.match(kept, '^([^:]+):([^:]+):?(%a*)$')
  if redis.call('EXISTS', job_key(job)) == 0 then
    redis.call('ZREM', 'cl:index:' .. owner, job)
    redis.call('SET', 'cl:gone:' .. job, owner, 'EX', gone_ttl_s)
    if file ~= '' then redis.call('ZADD', 'cl:feeds', now_ms(), job) end
    redis.call('ZREM', 'cl:keeping', kept)
    forgotten = forgotten + 1
  else
    -- Held longer, as for a batch: out of the way of those behind it until then.
    local until_ms = now_ms() + math.max(1000, redis.call('PTTL', job_key(job)))
    redis.call('HSET', job_key(job), 'kept_until_ms', until_ms)
    redis.call('ZADD', 'cl:keeping', until_ms, kept)
  end
end
return forgotten
