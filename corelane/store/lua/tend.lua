-- tend(grace_ms, ttl) → cores that must be rung for
-- Ends jobs whose time is over. Finds cores that hold a version with waiting work and do nothing about it, judging by
-- progress (asked for work lately, or holds a lease), never by the bell.
local grace_ms, ttl = tonumber(ARGV[1]), tonumber(ARGV[2])
local now, working, silent, seen = now_ms(), {}, {}, {}
for _, job in ipairs(redis.call('ZRANGEBYSCORE', 'cl:expiring', '-inf', now, 'LIMIT', 0, 1000)) do
  if is_open(redis.call('HGET', job_key(job), 'status')) then
    expire(job, ttl)
  else
    redis.call('ZREM', 'cl:expiring', job)
  end
end
for _, lease in ipairs(redis.call('ZRANGEBYSCORE', 'cl:leases', now, '+inf')) do
  working[string.match(lease, '^(.*)#%d+$')] = true
end
for _, version in ipairs(redis.call('HKEYS', 'cl:waiting')) do
  redis.call('ZREMRANGEBYSCORE', 'cl:holders:' .. version, '-inf', now - 1)
  for _, core in ipairs(redis.call('ZRANGE', 'cl:holders:' .. version, 0, -1)) do
    local claimed = tonumber(redis.call('HGET', 'cl:claimed', core) or 0)
    if not working[core] and not seen[core] and now - claimed > grace_ms then
      seen[core], silent[#silent + 1] = true, core
    end
  end
end
for _, core in ipairs(redis.call('HKEYS', 'cl:speeds')) do
  if redis.call('EXISTS', 'cl:core:' .. core) == 0 then redis.call('HDEL', 'cl:speeds', core) end
end
return silent
