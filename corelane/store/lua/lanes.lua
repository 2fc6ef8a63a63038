-- Lanes, lines and bells: where refs wait, and which cores are rung for them.

-- SMALL_JOBS is the member of a line that stands for all small jobs of the owner; it sorts before every job. LINE_MARK
-- marks a line in a set of lanes.
local SMALL_JOBS, LINE_MARK = '-', '+'

-- The Celery queue that only this core reads.
local function queue_of(core) return 'core.' .. string.gsub(core, '/', '.') end

-- Wake a core: push to it if its drain lingers, send a Celery message if it sleeps, do nothing if it is rung already.
-- Without an envelope no message is sent.
-- → whether it is woken now
local function ring(core, envelope)
  local bell = keys.bell(core)
  local state = call('GET', bell)
  if state == 'r' or not (state or envelope) then return false end
  call('SET', bell, 'r', 'EX', 30)
  if state == 'l' then
    call('RPUSH', keys.wake(core), 1)
    call('EXPIRE', keys.wake(core), 30)
    return true
  end
  local queue = queue_of(core)
  local id = 'bell-' .. queue .. '-' .. call('INCR', keys.BELLS)
  local message = string.gsub(string.gsub(envelope, 'BELLID', id), 'BELLQUEUE', queue)
  call('LPUSH', queue, message)
  return true
end

-- Ring at most `most` cores that hold a version and are not rung yet, those with the least claimed work first.
local function ring_some(version, most, envelope)
  local cores = holders_of(version)
  if #cores == 0 then return end
  local held = {}
  for i, tokens in ipairs(call('HMGET', keys.HELD, unpack(cores))) do held[cores[i]] = tonumber(tokens or 0) end
  table.sort(cores, function(a, b)
    if held[a] ~= held[b] then return held[a] < held[b] end
    return a < b
  end)
  for _, core in ipairs(cores) do
    if most == 0 then return end
    if ring(core, envelope) then most = most - 1 end
  end
end

-- An owner whose lanes were empty starts level with the one served least so far, just before it. Paused owners are
-- sorted behind all others, so that no owner starts level with them.
local PAUSED_SHARE = 'inf'
local function join_shares(owner, priority)
  local shares = keys.shares(priority)
  if call('ZSCORE', shares, owner) then return end
  local least = call('ZRANGE', shares, 0, 0, 'WITHSCORES')[2]
  local level = least and least ~= PAUSED_SHARE and least - 1 or 0
  call('ZADD', shares, is_paused('owner', owner) and PAUSED_SHARE or level, owner)
end

-- An owner that waits starts level again, as if it came now.
local function level_owner(owner, priority)
  if call('ZREM', keys.shares(priority), owner) == 1 then join_shares(owner, priority) end
end

-- Note whose share counts for an owner: `kept` lists keys of it as KEY:SHARE:UNTIL, newest first. What it was charged by
-- another share counts no more.
local function set_shares(owner, kept)
  if kept == '' then call('HDEL', keys.KEY_SHARES, owner) else call('HSET', keys.KEY_SHARES, owner, kept) end
  for priority = 0, 2 do level_owner(owner, priority) end
end

-- The share of an owner: that of its newest key that can be used. A key that has expired is forgotten here.
local function share_of(owner)
  local kept = call('HGET', keys.KEY_SHARES, owner)
  if not kept then return 1 end
  local share, till, rest = string.match(kept, '^%S+:(%S+):(%d+) ?(.*)$')
  if tonumber(till) > now_ms() then return tonumber(share) end
  set_shares(owner, rest)
  return share_of(owner)
end

-- Charge an owner for tokens: they count less the larger its share is.
local function charge_owner(ref, tokens)
  call('ZINCRBY', keys.shares(ref.priority), tokens / share_of(ref.owner), ref.owner)
end

-- A larger job whose refs begin to wait starts level with the one of its owner that was served least. Jobs that are
-- level are served in the order of their ids, which is the order in which they came.
local function join_line(version, ref)
  local line = keys.line(version, ref.priority, ref.owner)
  if call('ZSCORE', line, ref.job) then return end
  local least = call('ZRANGE', line, 0, 1, 'WITHSCORES')
  call('ZADD', line, least[least[1] == SMALL_JOBS and 4 or 2] or 0, ref.job)
end

-- Remove an owner's lane or line that is empty, and the owner if it has no other.
local function strike_off(name, priority, owner)
  local lanes = keys.owner_lanes(priority, owner)
  call('SREM', lanes, name)
  if call('EXISTS', lanes) == 0 then call('ZREM', keys.shares(priority), owner) end
end

-- Remove a job from its line. If no larger job is left, remove the entry of the small jobs too.
local function leave_line(line, job, version, priority, owner)
  call('ZREM', line, job)
  local left = call('ZRANGE', line, 0, 1)
  if #left == 0 or (#left == 1 and left[1] == SMALL_JOBS) then
    call('DEL', line)
    strike_off(LINE_MARK .. version, priority, owner)
  end
end

-- A small job is one slice that a batch can hold. The last slice of a job fed from a file is not: its job has more items.
local function is_small(ref, refs)
  return #refs == 1 and ref.tokens <= SMALL_TOKENS and call('HGET', keys.job(ref.job), 'total') == ref.count
end

-- Put refs of one job where they wait for its version, and ring cores for them. `to_front` puts them first. Refs that
-- were claimed and lost before wait apart. Refs of a small job wait in its owner's lane, those of a larger job in its
-- own list.
local function enqueue(version, refs, envelope, to_front)
  if #refs == 0 then return end
  local push, from, to, step = to_front and 'LPUSH' or 'RPUSH', 1, #refs, 1
  if to_front then from, to, step = #refs, 1, -1 end
  local head = parse(refs[1])
  local small, place = head.attempt == 1 and is_small(head, refs), keys.returned(version)
  if head.attempt == 1 then
    place = small and keys.lane(version, head.priority, head.owner) or keys.refs(head.job)
  end
  for r = from, to, step do
    local ref = r == 1 and head or parse(refs[r])
    charge(keys.WAITING, version, ref, ref.tokens)
    call(push, place, refs[r])
  end
  if head.attempt == 1 then
    call('SADD', keys.owner_lanes(head.priority, head.owner), small and version or LINE_MARK .. version)
    join_shares(head.owner, head.priority)
    if not small then join_line(version, head) end
  end
  local paused = call('HMGET', keys.PAUSED, 'model:' .. version, 'owner:' .. head.owner)
  if not (paused[1] or paused[2]) then ring_some(version, #refs, envelope) end
end

-- Whether work of a version waits that no pause holds up. Paused owners are sorted behind the others.
local LOOKED_AT_OWNERS = 1000
local function may_go_on(version, paused)
  if paused['model:' .. version] then return false end
  if not next(paused) then return true end
  for _, text in ipairs(call('LRANGE', keys.returned(version), 0, LOOKED_AT_OWNERS - 1)) do
    local ref = parse(text)
    if not (ref and paused['owner:' .. ref.owner]) then return true end
  end
  for priority = 0, 2 do
    for _, owner in ipairs(call('ZRANGE', keys.shares(priority), 0, LOOKED_AT_OWNERS - 1)) do
      local lanes = keys.owner_lanes(priority, owner)
      local has_any = call('SISMEMBER', lanes, version) == 1 or call('SISMEMBER', lanes, LINE_MARK .. version) == 1
      if has_any and not paused['owner:' .. owner] then return true end
    end
  end
  return false
end

-- Drop refs of ended jobs, and texts that are no refs, from the front of a list, at most `most`. → how many
local function drop_ended(list, version, most)
  local ended, forged, owed, total = 0, 0, {}, 0
  for _, text in ipairs(call('LRANGE', list, 0, most - 1)) do
    local ref = parse(text)
    if not ref then
      drop_forged(list, text)
      forged = forged + 1
    elseif job_is_open(ref.job) then
      break
    else
      ended, total, owed[ref.owner] = ended + 1, total + ref.tokens, (owed[ref.owner] or 0) + ref.tokens
    end
  end
  if ended > 0 then
    call('LTRIM', list, ended, -1)
    add(keys.WAITING, version, -total)
    for owner, tokens in pairs(owed) do add(keys.OWED, owner, -tokens) end
  end
  return ended + forged
end

-- Remove the waiting refs of a larger job that ends, and subtract their tokens.
local function drop_refs(job, version)
  local tokens, last, refs = 0, nil, call('LRANGE', keys.refs(job), 0, -1)
  if #refs == 0 then return end
  for _, text in ipairs(refs) do
    local ref = parse(text)
    if ref then tokens, last = tokens + ref.tokens, ref end
  end
  call('UNLINK', keys.refs(job))
  if last then
    charge(keys.WAITING, version, last, -tokens)
    leave_line(keys.line(version, last.priority, last.owner), job, version, last.priority, last.owner)
  end
end
