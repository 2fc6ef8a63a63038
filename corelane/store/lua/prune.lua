-- prune(silent_ms, dead_ms, idle_ms, most) → refs dropped
-- So that nothing stays in Redis for good once work is done: what cores left that were silent for `silent_ms`, dead letters
-- older than `dead_ms`, hosts and owners of whom nothing is kept, refs of ended jobs where no core is left to pass over them.
-- Looks at `most` of each kind; the rest follow.
local silent_ms, dead_ms, idle_ms, most = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local now, dropped = now_ms(), 0

local function prune_cores()
  for _, core in ipairs(redis.call('ZRANGEBYSCORE', 'cl:cores', '-inf', now - silent_ms, 'LIMIT', 0, most)) do
    redis.call('ZREM', 'cl:cores', core)
    redis.call('SREM', 'cl:out_of_service', core)
  end
  for _, key in ipairs({ 'cl:turns', 'cl:claimed', 'cl:speeds' }) do
    for _, core in ipairs(redis.call('HKEYS', key)) do
      if not redis.call('ZSCORE', 'cl:cores', core) then redis.call('HDEL', key, core) end
    end
  end
  for _, version in ipairs(redis.call('HKEYS', 'cl:models')) do
    redis.call('ZREMRANGEBYSCORE', 'cl:holders:' .. version, '-inf', now - 1)
  end
end

-- A delivery may end with its time while nobody sends, and with it the last one to its host.
local function prune_hosts()
  redis.call('ZREMRANGEBYSCORE', 'cl:dead', '-inf', now - dead_ms)
  local hosts = redis.call('ZRANGE', 'cl:due', 0, most - 1)
  for _, host in ipairs(redis.call('ZRANGE', 'cl:circuits', 0, most - 1)) do hosts[#hosts + 1] = host end
  for _, host in ipairs(hosts) do
    for _, id in ipairs(redis.call('ZRANGE', 'cl:due:' .. host, 0, 9)) do
      if redis.call('EXISTS', delivery_key(id)) == 0 then redis.call('ZREM', 'cl:due:' .. host, id) end
    end
    if redis.call('EXISTS', 'cl:due:' .. host) == 0 then settle_host(host) end
  end
end

local function owns_anything(owner)
  if redis.call('EXISTS', 'cl:index:' .. owner, 'cl:files:' .. owner, 'cl:batches:' .. owner) > 0 then return true end
  for priority = 0, 2 do
    for _, key in ipairs({ 'cl:owed', 'cl:unfed' }) do
      if redis.call('HEXISTS', key, owner .. ':' .. priority) == 1 then return true end
    end
  end
  return false
end

local function prune_owners()
  for _, owner in ipairs(redis.call('ZRANGEBYSCORE', 'cl:owners', '-inf', now - idle_ms, 'LIMIT', 0, most)) do
    if owns_anything(owner) then
      redis.call('ZADD', 'cl:owners', now, owner)
    else
      redis.call('ZREM', 'cl:owners', owner)
    end
  end
end

-- Drop refs of ended jobs from the front of a list, up to the first that is wanted.
local function prune_refs(list, version)
  while dropped < most do
    local text = redis.call('LINDEX', list, 0)
    if not text then return end
    local ref = parse(text)
    if not ref then
      drop_forged(list, text)
    else
      if is_open(redis.call('HGET', job_key(ref.job), 'status')) then return end
      redis.call('LPOP', list)
      charge('cl:waiting', version, ref, -ref.tokens)
    end
    dropped = dropped + 1
  end
end

local function prune_lanes(version)
  prune_refs('cl:returned:' .. version, version)
  for priority = 0, 2 do
    for _, owner in ipairs(redis.call('ZRANGE', 'cl:shares:' .. priority, 0, most - 1)) do
      local lanes, lane = 'cl:lanes:' .. priority .. ':' .. owner, lane_key(version, priority, owner)
      prune_refs(lane, version)
      if redis.call('EXISTS', lane) == 0 and redis.call('SREM', lanes, version) == 1
        and redis.call('EXISTS', lanes) == 0 then
        redis.call('ZREM', 'cl:shares:' .. priority, owner)
      end
    end
  end
end

prune_cores()
prune_hosts()
prune_owners()
for _, version in ipairs(redis.call('HKEYS', 'cl:waiting')) do
  if redis.call('ZCOUNT', 'cl:holders:' .. version, now, '+inf') == 0 then prune_lanes(version) end
end
return dropped
