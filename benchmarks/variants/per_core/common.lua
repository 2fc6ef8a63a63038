
-- Lanes of each core's own, read behind the product's common.lua: a ref is routed when it is submitted, and cl:held counts
-- all that was routed to a core and is not answered yet, so that commit and return stay as they are. What the keeper would
-- do for lanes of dead cores is left out.
local steals = true

-- CORE:VERSION:P:OWNER, as in the names of lanes.
local function parse_lane(lane) return string.match(lane, '^([^:]+):(.+):(%d):([^:]+)$') end
local function lane_name(core, version, priority, owner)
  return core .. ':' .. version .. ':' .. priority .. ':' .. owner
end

-- Put refs into the lanes of one core, and ring it.
local function put(core, version, refs, envelope, to_front)
  local push, from, to, step, known = to_front and 'LPUSH' or 'RPUSH', 1, #refs, 1, {}
  if to_front then from, to, step = #refs, 1, -1 end
  for r = from, to, step do
    local ref = parse(refs[r])
    local lane = lane_name(core, version, ref.priority, ref.owner)
    charge('cl:held', core, ref, ref.tokens)
    redis.call(push, 'cl:lane:' .. lane, refs[r])
    if not known[lane] then
      known[lane] = true
      redis.call('SADD', 'cl:lanes', lane)
      join_shares(ref.owner, core .. ':' .. ref.priority)
    end
  end
  if envelope then ring(core, envelope) end
end

-- Each ref to the core with the fewest outstanding tokens among those that hold the version.
local function enqueue(version, refs, envelope, to_front)
  if #refs == 0 then return end
  local cores = redis.call('ZRANGEBYSCORE', 'cl:holders:' .. version, now_ms(), '+inf')
  if #cores == 0 then error('no core holds ' .. version) end
  table.sort(cores)
  local load, chosen = {}, {}
  for i, count in ipairs(redis.call('HMGET', 'cl:held', unpack(cores))) do
    load[i], chosen[i] = tonumber(count or 0), {}
  end
  for _, text in ipairs(refs) do
    local best = 1
    for i = 2, #cores do
      if load[i] < load[best] then best = i end
    end
    load[best] = load[best] + parse(text).tokens
    table.insert(chosen[best], text)
  end
  for i, core in ipairs(cores) do
    if #chosen[i] > 0 then put(core, version, chosen[i], envelope, to_front) end
  end
end
