-- admit(model, owner) → {per version the model may mean: {version, weight, speeds of the living cores that hold it}, tokens in the
--   lanes and in files as owner:priority, tokens…, open jobs by priority, of the owner by priority: {small jobs that wait,
--   their tokens, larger jobs that wait}}
-- All that is asked before a job is taken in. Writes nothing. A version that is closed takes no more jobs.
-- The model is a version, else an alias, else a model's name.
local model, found, open = ARGV[1], {}, {}
local function add_version(version, weight)
  if redis.call('HEXISTS', 'cl:closed', version) == 1 then return end
  local speeds, cores = {}, redis.call('ZRANGEBYSCORE', 'cl:holders:' .. version, now_ms(), '+inf')
  if #cores > 0 then speeds = redis.call('HMGET', 'cl:speeds', unpack(cores)) end
  found[#found + 1] = { version, weight, speeds }
end
-- Of the open versions of this name the newest that a living core holds, else the newest.
local function newest_named(name)
  local prefix, best, best_held, best_made = name .. '@', nil, false, ''
  for _, version in ipairs(redis.call('HKEYS', 'cl:models')) do
    if string.sub(version, 1, #prefix) == prefix and redis.call('HEXISTS', 'cl:closed', version) == 0 then
      local held = redis.call('ZCOUNT', 'cl:holders:' .. version, now_ms(), '+inf') > 0
      local made = tostring(cjson.decode(redis.call('HGET', 'cl:models', version)).created_at)
      if not best or (held and not best_held) or (held == best_held and made > best_made) then
        best, best_held, best_made = version, held, made
      end
    end
  end
  return best
end
if redis.call('HEXISTS', 'cl:models', model) == 1 then
  add_version(model, '1')
else
  local means = redis.call('HGET', 'cl:aliases', model)
  if means and not string.find(means, ' ', 1, true) then
    add_version(means, '1')
  elseif means then
    for version, weight in string.gmatch(means, '(%S+) (%S+)') do add_version(version, weight) end
  else
    local named = newest_named(model)
    if named then add_version(named, '1') end
  end
end
for priority = 0, 2 do open[priority + 1] = redis.call('SCARD', 'cl:open:' .. priority) end

-- Tokens of the refs in a lane, from their mean over the first few.
local SAMPLE = 8
local function lane_tokens(lane, length)
  local sample, tokens = redis.call('LRANGE', lane, 0, SAMPLE - 1), 0
  for _, text in ipairs(sample) do
    local ref = parse(text)
    tokens = tokens + (ref and ref.tokens or 0)
  end
  return math.ceil(tokens * length / #sample)
end

local function own_at(priority)
  local small, tokens, larger = 0, 0, 0
  for _, name in ipairs(redis.call('SMEMBERS', 'cl:lanes:' .. priority .. ':' .. ARGV[2])) do
    if string.sub(name, 1, 1) == LINE_MARK then
      local line = line_key(string.sub(name, 2), priority, ARGV[2])
      larger = larger + redis.call('ZCARD', line) - (redis.call('ZSCORE', line, SMALL_JOBS) and 1 or 0)
    else
      local lane = lane_key(name, priority, ARGV[2])
      local length = redis.call('LLEN', lane)
      if length > 0 then small, tokens = small + length, tokens + lane_tokens(lane, length) end
    end
  end
  return { small, tokens, larger }
end

local own = { own_at(0), own_at(1), own_at(2) }
return { found, redis.call('HGETALL', 'cl:owed'), redis.call('HGETALL', 'cl:unfed'), open, own }
