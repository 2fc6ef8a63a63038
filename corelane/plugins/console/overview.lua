-- The overview: the waiting work, by lane and by owner.

-- lane_tokens_by_priority{lists} → {version, priority, tokens}…, what waits in lanes and files
-- A list's tokens are estimated from its first refs. At most `lists` lists are read for each priority, at most `lists`
-- returned refs for each version, and at most `lists` files.
define('lane_tokens_by_priority', function(ask)
  local lanes, found = {}, {}
  local function note(version, priority, tokens)
    local name = version .. ' ' .. priority
    if not lanes[name] then
      lanes[name] = { version, tonumber(priority), 0 }
      found[#found + 1] = lanes[name]
    end
    lanes[name][3] = lanes[name][3] + tokens
  end

  local left
  local function note_list(version, priority, list)
    if left == 0 then return end
    left = left - 1
    local length = call('LLEN', list)
    if length > 0 then note(version, priority, admission.lane_tokens(list, length)) end
  end

  for priority = 0, 2 do
    left = ask.lists
    for _, owner in ipairs(call('ZRANGE', keys.shares(priority), 0, ask.lists - 1)) do
      if left == 0 then break end
      for _, name in ipairs(call('SMEMBERS', keys.owner_lanes(priority, owner))) do
        if string.sub(name, 1, 1) == LINE_MARK then
          local version = string.sub(name, 2)
          for _, job in ipairs(call('ZRANGE', keys.line(version, priority, owner), 0, left)) do
            if job ~= SMALL_JOBS then note_list(version, priority, keys.refs(job)) end
          end
        else
          note_list(name, priority, keys.lane(name, priority, owner))
        end
      end
    end
  end
  for _, version in ipairs(call('HKEYS', keys.WAITING)) do
    for _, text in ipairs(call('LRANGE', keys.returned(version), 0, ask.lists - 1)) do
      local ref = parse(text)
      if ref then note(version, ref.priority, ref.tokens) end
    end
  end
  for _, job in ipairs(jobs.first_fed(ask.lists)) do
    local status, version, priority = unpack(call('HMGET', keys.job(job), 'status', 'version', 'priority'))
    if is_open(status) then
      local _, tokens = jobs.unfed(job)
      if tokens > 0 then note(version, priority, tokens) end
    end
  end
  return found
end, 'no-writes')

-- owners_with_work{most, jobs} → {owner, tokens not answered, open jobs, their items or -1 with more than `jobs` jobs, age in
--   ms of the oldest}…, of at most `most` owners, those with the most tokens first
define('owners_with_work', function(ask)
  local tokens, owners, found = {}, {}, {}
  for _, key in ipairs({ keys.OWED, keys.UNFED }) do
    local all = call('HGETALL', key)
    for i = 1, #all, 2 do
      local owner = string.match(all[i], '^(.*):[012]$')
      if not tokens[owner] then owners[#owners + 1] = owner end
      tokens[owner] = (tokens[owner] or 0) + all[i + 1]
    end
  end
  table.sort(owners, function(a, b)
    if tokens[a] ~= tokens[b] then return tokens[a] > tokens[b] end
    return a < b
  end)
  for place = 1, math.min(#owners, ask.most) do
    local owner, items = owners[place], 0
    local open = keys.listed('open', owner)
    local count, first = call('ZCARD', open), call('ZRANGE', open, 0, ask.jobs - 1)
    for _, job in ipairs(first) do items = items + (call('HGET', keys.job(job), 'left') or 0) end
    local created = first[1] and call('HGET', keys.job(first[1]), 'created_ms') or now_ms()
    found[place] = { owner, tokens[owner], count, count > ask.jobs and -1 or items, now_ms() - created }
  end
  return found
end, 'no-writes')
