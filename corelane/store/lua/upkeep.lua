-- Upkeep: the keeper's regular work, so that nothing is lost and nothing stays for good.

-- tend{grace_ms, ttl} → cores that must be rung
-- Ends jobs whose time is over. Finds cores that hold a version with waiting work but do not work on it. It judges by
-- progress (the core asked for work a moment ago, or holds a lease), never by the bell.
define('tend', function(ask)
  local now, working, silent, seen = now_ms(), {}, {}, {}
  for _, job in ipairs(call('ZRANGEBYSCORE', keys.EXPIRING, '-inf', now, 'LIMIT', 0, 1000)) do
    if job_is_open(job) then
      jobs.cut_short(job, 'expired', ask.ttl)
    else
      call('ZREM', keys.EXPIRING, job)
    end
  end
  for _, lease in ipairs(call('ZRANGEBYSCORE', keys.LEASES, now, '+inf')) do
    working[string.match(lease, '^(.*)#%d+$')] = true
  end
  local paused = read_paused()
  for _, version in ipairs(call('HKEYS', keys.WAITING)) do
    call('ZREMRANGEBYSCORE', keys.holders(version), '-inf', now - 1)
    local cores = may_go_on(version, paused) and call('ZRANGE', keys.holders(version), 0, -1) or {}
    for _, core in ipairs(cores) do
      local claimed = tonumber(call('HGET', keys.CLAIMED, core) or 0)
      if not working[core] and not seen[core] and now - claimed > ask.grace_ms then
        seen[core], silent[#silent + 1] = true, core
      end
    end
  end
  for _, core in ipairs(call('HKEYS', keys.SPEEDS)) do
    if call('EXISTS', keys.core(core)) == 0 then call('HDEL', keys.SPEEDS, core) end
  end
  return silent
end)

-- let_in{envelope, most} → how many jobs and refs were let in, as their time has come; at least `most` if more may follow
define('let_in', function(ask)
  local done = 0
  for _, job in ipairs(call('ZRANGEBYSCORE', keys.LATER, '-inf', now_ms(), 'LIMIT', 0, ask.most)) do
    done = done + 1 + jobs.let_in(job, ask.envelope)
    if done >= ask.most then break end
  end
  return done
end)

-- forget{gone_ttl_s, most} → jobs forgotten
-- Cleans up after jobs that are not kept any longer: removes them from their owners' lists, and notes for a while that
-- they are gone.
define('forget', function(ask)
  local forgotten = 0
  for _, kept in ipairs(call('ZRANGEBYSCORE', keys.KEEPING, '-inf', now_ms(), 'LIMIT', 0, ask.most)) do
    local owner, job, file = string.match(kept, '^([^:]+):([^:]+):?(%a*)$')
    local left_ms = call('PTTL', keys.job(job))
    if left_ms == -2 then
      index.unlist(owner, job)
      call('SET', keys.gone(job), owner, 'EX', ask.gone_ttl_s)
      if file ~= '' then call('ZADD', keys.FEEDS, now_ms(), job) end
      call('ZREM', keys.KEEPING, kept)
      forgotten = forgotten + 1
    else
      -- It is kept longer, as for a batch. Until then it must not block those behind it.
      local until_ms = now_ms() + math.max(1000, left_ms)
      call('HSET', keys.job(job), 'kept_until_ms', until_ms)
      call('ZADD', keys.KEEPING, until_ms, kept)
    end
  end
  return forgotten
end)

-- take_ended{most, fields} → {per job that became final since the last call: job, status, then these fields of its
-- hash}
-- Each end is reported once, to the keeper that asks first. The very first call reports the last minute.
local FIRST_MS = 60000
define('take_ended', function(ask)
  local last = call('GET', keys.LAST_END) or now_ms() - FIRST_MS .. '-0'
  local ended = {}
  for _, entry in ipairs(call('XRANGE', keys.ENDS, '(' .. last, '+', 'COUNT', ask.most)) do
    local job, status = entry[2][2], entry[2][4]
    ended[#ended + 1] = { job, status, unpack(call('HMGET', keys.job(job), unpack(ask.fields))) }
    last = entry[1]
  end
  if #ended > 0 then call('SET', keys.LAST_END, last) end
  return ended
end)

-- note_round{name}: the process that runs this loop (sweeps, feeding, those of plugins) is alive and has finished a
-- round
define('note_round', function(ask) call('HSET', keys.ROUNDS, ask.name, now_ms()) end)

-- overdue{} → names and how long each has waited although it could go on, in ms: webhooks, sweeps, feeding, and what
-- areas add; -1 if there is no work. Work that waits for a set time, a pause or a failing host is not overdue. A sweep
-- counts from the first one on.
define('overdue', function()
  local now = now_ms()
  local due = call('ZRANGE', keys.DUE_HOSTS, 0, 0, 'WITHSCORES')[2]
  local swept = call('HGET', keys.ROUNDS, 'sweeps')
  local function since(name, work)
    local oldest = call('ZRANGE', work, 0, 0, 'WITHSCORES')[2]
    if not oldest then return -1 end
    return now - math.max(tonumber(oldest), tonumber(call('HGET', keys.ROUNDS, name) or 0))
  end
  local found = {}
  local function add_wait(name, ms) found[#found + 1], found[#found + 2] = name, ms end
  add_wait('webhooks', due and tonumber(due) <= now and now - tonumber(due) or -1)
  add_wait('sweeps', swept and now - tonumber(swept) or -1)
  add_wait('feeding', since('feeding', keys.FEEDS))
  hooks.overdue(add_wait, since)
  return found
end, 'no-writes')

-- The parts of prune. Each looks at `most` entries of a kind; the rest follow in the next round.
local function prune_cores(before, most)
  for _, core in ipairs(call('ZRANGEBYSCORE', keys.CORES, '-inf', before, 'LIMIT', 0, most)) do
    fleet.forget_core(core)
  end
  for _, key in ipairs({ keys.CLAIMED, keys.SPEEDS }) do
    for _, core in ipairs(call('HKEYS', key)) do
      if not call('ZSCORE', keys.CORES, core) then call('HDEL', key, core) end
    end
  end
  for _, version in ipairs(call('HKEYS', keys.MODELS)) do
    call('ZREMRANGEBYSCORE', keys.holders(version), '-inf', now_ms() - 1)
  end
end

-- A host may lose its last delivery while no sender runs, as deliveries expire.
local function prune_hosts(before, most)
  call('ZREMRANGEBYSCORE', keys.DEAD, '-inf', before)
  local hosts = call('ZRANGE', keys.DUE_HOSTS, 0, most - 1)
  for _, host in ipairs(call('ZRANGE', keys.CIRCUITS, 0, most - 1)) do hosts[#hosts + 1] = host end
  for _, host in ipairs(hosts) do
    for _, id in ipairs(call('ZRANGE', keys.due(host), 0, 9)) do
      if call('EXISTS', keys.delivery(id)) == 0 then call('ZREM', keys.due(host), id) end
    end
    if call('EXISTS', keys.due(host)) == 0 then deliveries.settle_host(host) end
  end
end

local function prune_lanes(version, dropped, most)
  local function drop(list) if dropped < most then dropped = dropped + drop_ended(list, version, most - dropped) end end
  drop(keys.returned(version))
  for priority = 0, 2 do
    for _, owner in ipairs(call('ZRANGE', keys.shares(priority), 0, most - 1)) do
      local lane = keys.lane(version, priority, owner)
      drop(lane)
      if call('EXISTS', lane) == 0 and call('SISMEMBER', keys.owner_lanes(priority, owner), version) == 1 then
        strike_off(version, priority, owner)
      end
    end
  end
  return dropped
end

-- prune{silent_ms, dead_ms, most, what hooks of plugins take…}
-- Removes entries without an expiry of their own that are no longer needed: cores that were silent for `silent_ms`,
-- dead letters older than `dead_ms`, unneeded texts, hosts without deliveries, and refs of
-- ended jobs if no core is left that would skip them.
define('prune', function(ask)
  local now, dropped = now_ms(), 0
  prune_cores(now - ask.silent_ms, ask.most)
  prune_hosts(now - ask.dead_ms, ask.most)
  hooks.prune(now, ask)
  for _, version in ipairs(call('HKEYS', keys.WAITING)) do
    if not is_held(version) then dropped = prune_lanes(version, dropped, ask.most) end
  end
end)

-- lease{key, holder, ttl_ms} → the holder's fence if it has the lease for ttl_ms now; 0 if another process has it
-- With 0 ms the lease is released, if it is the holder's. A holder that extends its lease keeps its fence.
define('lease', function(ask)
  local found = call('GET', ask.key)
  if found and found ~= ask.holder then return 0 end
  if ask.ttl_ms == 0 then
    call('DEL', ask.key)
    return 0
  end
  call('SET', ask.key, ask.holder, 'PX', ask.ttl_ms)
  local last = tonumber(call('HGET', keys.FENCES, ask.key) or 0)
  if found and last > 0 then return last end
  local fence = math.max(last + 1, next_fence())
  call('HSET', keys.FENCES, ask.key, string.format('%.0f', fence))
  return fence
end)
