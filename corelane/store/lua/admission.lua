-- Admission: reads what is needed before a job is accepted, and refuses jobs that Redis has no memory for.

-- → the items of a version that are not final, without those whose results are dropped as they are read
-- (keys.WINDOWED); and the mean bytes of a result, UNKNOWN_BYTES before the first
local UNKNOWN_BYTES = 512
local function open_items(version)
  local items_of = 'corelane_items_total|' .. version
  local submitted, ok, failed, canceled, expired, bytes = unpack(call('HMGET', keys.METRICS,
    'corelane_items_submitted_total|' .. version, items_of .. '|succeeded', items_of .. '|failed',
    items_of .. '|canceled', items_of .. '|expired', 'corelane_result_bytes_total|' .. version))
  local answered = (ok or 0) + (failed or 0)
  local open = (submitted or 0) - answered - (canceled or 0) - (expired or 0) - (call('HGET', keys.WINDOWED, version) or 0)
  return math.max(0, open), bytes and answered > 0 and bytes / answered or UNKNOWN_BYTES
end

local function reserved_bytes()
  local bytes = 0
  for _, version in ipairs(call('HKEYS', keys.JOB_COUNTS)) do
    local items, each = open_items(version)
    bytes = bytes + items * each
  end
  return math.ceil(bytes)
end

-- → the memory that Redis uses, its limit (0: none), and what the results of accepted items will take, in bytes
local function read_memory()
  local info = call('INFO', 'memory')
  local limit = tonumber(string.match(info, '\nmaxmemory:(%d+)'))
  local used, apart = string.match(info, 'used_memory:(%d+)'), string.match(info, 'mem_not_counted_for_evict:(%d+)')
  return used - (apart or 0), limit, limit > 0 and reserved_bytes() or 0
end

-- Refuse what is to be accepted if Redis would have no memory left to finish what it accepted before. The memory is read
-- every 10 ms at most, as that takes 50 us, and every 100 ms while less than half is used. The results of a new job count
-- too: of `items` of a `version`.
local memory, read_us, fresh_us = {}, 0, 0
function admission.refuse(version, items)
  local now = now_us()
  if math.abs(now - read_us) > fresh_us then
    memory, read_us = { read_memory() }, now
    fresh_us = (memory[2] == 0 or memory[1] + memory[3] <= memory[2] / 2) and 100000 or 10000
  end
  local used, limit, reserved = unpack(memory)
  if limit == 0 then return end
  local more = 0
  if version then
    local _, each = open_items(version)
    more = items * each
  end
  if used + reserved + more > limit * MEMORY_SHARE then
    return redis.error_reply(string.format('MEMORYFULL %.0f %.0f %.0f', used, reserved + more, limit))
  end
  memory[3] = reserved + more
end

-- memory{} → see read_memory
define('memory', function() return { read_memory() } end, 'no-writes')

-- Of the open versions of a model, return the newest that a living core holds, else the newest.
local function newest_named(name)
  local prefix, best, best_held, best_made = name .. '@', nil, false, ''
  for _, version in ipairs(call('HKEYS', keys.MODELS)) do
    if string.sub(version, 1, #prefix) == prefix and call('HEXISTS', keys.CLOSED, version) == 0 then
      local held = is_held(version)
      local made = tostring(cjson.decode(call('HGET', keys.MODELS, version)).created_at)
      if not best or (held and not best_held) or (held == best_held and made > best_made) then
        best, best_held, best_made = version, held, made
      end
    end
  end
  return best
end

-- Tokens of the refs in a lane, estimated from the mean of the first few.
local SAMPLE = 8
function admission.lane_tokens(lane, length)
  local sample, tokens = call('LRANGE', lane, 0, SAMPLE - 1), 0
  for _, text in ipairs(sample) do
    local ref = parse(text)
    tokens = tokens + (ref and ref.tokens or 0)
  end
  return math.ceil(tokens * length / #sample)
end

-- Sum the numbers of a hash.
local function sum_of(key)
  local total = 0
  for _, amount in ipairs(call('HVALS', key)) do total = total + amount end
  return total
end

-- What a model means: a version, or `VERSION WEIGHT` of several. It is a version, an alias, or the name of a model; they
-- are tried in this order.
local function meaning(model)
  return call('HEXISTS', keys.MODELS, model) == 1 and model or call('HGET', keys.ALIASES, model) or newest_named(model)
end

-- The version that a job which has not begun asks now; nil if that is still its own, as its model means it and it takes
-- jobs. Else it is the first open one of the same task that its model means.
function admission.meant_now(asked, version)
  local function task_of(name) return cjson.decode(call('HGET', keys.MODELS, name) or '{}').task end
  local other
  for name in string.gmatch(meaning(asked) or '', '%S+@%S+') do
    if call('HEXISTS', keys.CLOSED, name) == 0 then
      if name == version then return nil end
      if not other and task_of(name) == task_of(version) then other = name end
    end
  end
  return other
end

-- → tokens of all owners that are not done, those of this owner
local function undone(owner)
  return sum_of(keys.WAITING) + sum_of(keys.DEFERRED) + sum_of(keys.HELD), tonumber(call('HGET', keys.OWED, owner) or 0)
end

-- admit{model, owner} → {per version the model may mean: {version, weight, number of living cores that hold it, number
-- of them without work}, tokens of all owners that are not done, those of this owner; pauses and who made them}
-- A closed version takes no new jobs.
define('admit', function(ask)
  local found, means = {}, meaning(ask.model)
  if means and not string.find(means, ' ', 1, true) then means = means .. ' 1' end
  for version, weight in string.gmatch(means or '', '(%S+) (%S+)') do
    if call('HEXISTS', keys.CLOSED, version) == 0 then
      local cores = holders_of(version)
      found[#found + 1] = { version, weight, #cores, #without_work(cores) }
    end
  end
  local outstanding, own = undone(ask.owner)
  return { found, outstanding, own, call('HGETALL', keys.PAUSED) }
end, 'no-writes')

-- Whether a job may be taken without an admission of its own: what it assumes, {model, tokens, most, own_most}, is still
-- true. The model means this version alone, a core holds it, nothing is paused, and the tokens are within both bounds.
function admission.is_as_assumed(assumed, version, owner)
  if meaning(assumed.model) ~= version or not is_held(version) or call('EXISTS', keys.PAUSED) == 1 then return false end
  local outstanding, own = undone(owner)
  return outstanding + assumed.tokens <= assumed.most and own + assumed.tokens <= assumed.own_most
end

-- drain_rates{seconds} → {tokens answered in each of the last full seconds, newest first; speeds of the cores with
-- work, or if there is none, the speed that a core told last}
-- This tells how fast the backlog shrinks. A core has work if it has claimed some, or holds a version with waiting
-- work.
define('drain_rates', function(ask)
  local now_s, answered, cores, names = math.floor(now_ms() / 1000), {}, {}, {}
  for ago = 1, ask.seconds do
    answered[ago] = sum_of(keys.rate(now_s - ago))
  end
  for _, core in ipairs(call('HKEYS', keys.HELD)) do cores[core] = true end
  for _, version in ipairs(call('HKEYS', keys.WAITING)) do
    for _, core in ipairs(holders_of(version)) do cores[core] = true end
  end
  for core in pairs(cores) do names[#names + 1] = core end
  return { answered, #names > 0 and call('HMGET', keys.SPEEDS, unpack(names)) or { call('GET', keys.LAST_SPEED) } }
end, 'no-writes')
