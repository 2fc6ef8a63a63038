-- tend(grace_ms, envelope, ttl) → cores that must be rung for
-- Ends jobs whose time is over. Moves what waits for cores that no longer hold its version, and for versions that had no
-- core. Finds lanes that nobody serves, judging by progress (asked for work lately, or holds a lease), never by the bell.
local grace_ms, envelope, ttl = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3])
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

local function take_back(place, key)
  local refs = redis.call('LRANGE', key, 0, 999)
  for _, text in ipairs(refs) do
    local ref = parse(text)
    charge(place, ref, -ref.tokens)
  end
  redis.call('LTRIM', key, #refs, -1)
  return refs
end

for _, lane in ipairs(redis.call('SMEMBERS', 'cl:lanes')) do
  local core, version, priority, owner = parse_lane(lane)
  local key = 'cl:lane:' .. lane
  local until_ms = tonumber(redis.call('ZSCORE', 'cl:holders:' .. version, core) or 0)
  if redis.call('EXISTS', key) == 0 then
    redis.call('SREM', 'cl:lanes', lane)
  elseif until_ms < now then
    redis.call('ZREM', 'cl:holders:' .. version, core)
    route(version, take_back(core, key), envelope, true)
  elseif not working[core] and not seen[core] then
    seen[core] = true
    local claimed = tonumber(redis.call('HGET', 'cl:claimed', core) or 0)
    if now - claimed > grace_ms then silent[#silent + 1] = core end
  end
end
for _, version in ipairs(redis.call('SMEMBERS', 'cl:orphaned')) do
  if #redis.call('ZRANGEBYSCORE', 'cl:holders:' .. version, now, '+inf', 'LIMIT', 0, 1) > 0 then
    local key = 'cl:orphans:' .. version
    route(version, take_back('orphans', key), envelope, false)
    if redis.call('EXISTS', key) == 0 then redis.call('SREM', 'cl:orphaned', version) end
  end
end
for _, core in ipairs(redis.call('HKEYS', 'cl:speeds')) do
  if redis.call('EXISTS', 'cl:core:' .. core) == 0 then redis.call('HDEL', 'cl:speeds', core) end
end
return silent
