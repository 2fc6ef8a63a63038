-- The overview: what waits, by lane, and for how long. It reads a bounded part of the data and writes nothing.

-- The oldest of the first refs of a list whose job is open. → when that job was created, nil if there is none
local LOOK_AT = 8
local function oldest_in(list)
  for _, text in ipairs(call('LRANGE', list, 0, LOOK_AT - 1)) do
    local ref = parse(text)
    local status, created = unpack(ref and call('HMGET', keys.job(ref.job), 'status', 'created_ms') or {})
    if is_open(status) then return tonumber(created) end
  end
end

-- Items of the open jobs of a priority that are not answered: counted if they are `most` jobs, else told from so many.
local function open_items(priority, most)
  local key, items = keys.open_jobs(priority), 0
  local jobs = call('SRANDMEMBER', key, most)
  for _, job in ipairs(jobs) do items = items + (tonumber(call('HGET', keys.job(job), 'left') or 0) or 0) end
  if #jobs < most then return items end
  return math.floor(items * call('SCARD', key) / #jobs)
end

-- survey{owners, jobs} → JSON: {now_ms, open_items, lanes: [{version, priority, tokens, oldest_ms}…]}
-- Tokens are told from the first refs of each list. At most `owners` owners of each priority and `jobs` jobs of each line
-- and of the files are looked at.
define('survey', function(ask)
  local lanes, names = {}, {}
  local function note(version, priority, tokens, oldest)
    local name = version .. ' ' .. priority
    local lane = lanes[name]
    if not lane then
      lane = { version = version, priority = tonumber(priority), tokens = 0, oldest_ms = oldest or now_ms() }
      lanes[name], names[#names + 1] = lane, name
    end
    lane.tokens = lane.tokens + tokens
    lane.oldest_ms = math.min(lane.oldest_ms, oldest or lane.oldest_ms)
  end

  local function note_list(version, priority, list)
    local length = call('LLEN', list)
    if length > 0 then note(version, priority, lane_tokens(list, length), oldest_in(list)) end
  end

  local function note_owner(priority, owner)
    for _, name in ipairs(call('SMEMBERS', keys.owner_lanes(priority, owner))) do
      if string.sub(name, 1, 1) == LINE_MARK then
        local version = string.sub(name, 2)
        for _, job in ipairs(call('ZRANGE', keys.line(version, priority, owner), 0, ask.jobs - 1)) do
          if job ~= SMALL_JOBS then note_list(version, priority, keys.refs(job)) end
        end
      else
        note_list(name, priority, keys.lane(name, priority, owner))
      end
    end
  end

  local open = 0
  for priority = 0, 2 do
    open = open + open_items(priority, ask.jobs)
    for _, owner in ipairs(call('ZRANGE', keys.shares(priority), 0, ask.owners - 1)) do note_owner(priority, owner) end
  end
  for _, version in ipairs(call('HKEYS', keys.WAITING)) do
    for _, text in ipairs(call('LRANGE', keys.returned(version), 0, ask.jobs - 1)) do
      local ref = parse(text)
      local created = ref and call('HGET', keys.job(ref.job), 'created_ms')
      if created then note(version, ref.priority, ref.tokens, tonumber(created)) end
    end
  end
  for _, job in ipairs(call('ZRANGE', keys.FEEDS, 0, ask.jobs - 1)) do
    local status, version, priority, created =
      unpack(call('HMGET', keys.job(job), 'status', 'version', 'priority', 'created_ms'))
    if is_open(status) then
      local _, tokens = unfed(job)
      if tokens > 0 then note(version, priority, tokens, tonumber(created)) end
    end
  end
  local found = {}
  for i, name in ipairs(names) do found[i] = lanes[name] end
  return cjson.encode({ now_ms = now_ms(), open_items = open, lanes = found })
end, 'no-writes')
