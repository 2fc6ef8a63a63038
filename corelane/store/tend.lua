-- tend(grace_ms, envelope, ttl) → cores that must be rung for
-- Ends jobs whose time is over. Moves what waits for dead cores and for versions that had none. Finds lanes that nobody
-- serves, judging by progress (asked for work lately, or holds a lease), never by the bell.
local grace_ms, envelope, ttl = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local now, working, silent = now_ms(), {}, {}
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
for _, lane in ipairs(redis.call('SMEMBERS', 'cl:lanes')) do
  local core, version = string.match(lane, '^([^:]+):(.+):%d$')
  local key = 'cl:lane:' .. lane
  if redis.call('EXISTS', 'cl:core:' .. core) == 0 then
    local refs = redis.call('LRANGE', key, 0, 999)
    for _, ref in ipairs(refs) do
      local _, _, tokens = parse(ref)
      redis.call('HINCRBY', 'cl:tokens', core, -tokens)
    end
    redis.call('LTRIM', key, #refs, -1)
    redis.call('ZREM', 'cl:holders:' .. version, core)
    route(version, refs, envelope, true)
    if #refs == 0 then redis.call('SREM', 'cl:lanes', lane) end
  elseif not working[core] and redis.call('EXISTS', key) == 1 then
    local claimed = tonumber(redis.call('HGET', 'cl:claimed', core) or 0)
    if now - claimed > grace_ms then silent[#silent + 1] = core end
  end
end
for _, version in ipairs(redis.call('SMEMBERS', 'cl:orphaned')) do
  if #redis.call('ZRANGEBYSCORE', 'cl:holders:' .. version, now, '+inf', 'LIMIT', 0, 1) > 0 then
    local refs = redis.call('LRANGE', 'cl:orphans:' .. version, 0, 999)
    redis.call('LTRIM', 'cl:orphans:' .. version, #refs, -1)
    for _, ref in ipairs(refs) do
      local _, _, tokens = parse(ref)
      redis.call('HINCRBY', 'cl:tokens', 'orphans', -tokens)
    end
    route(version, refs, envelope, false)
    if redis.call('EXISTS', 'cl:orphans:' .. version) == 0 then redis.call('SREM', 'cl:orphaned', version) end
  end
end
return silent
