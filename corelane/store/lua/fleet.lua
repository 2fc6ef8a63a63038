-- The fleet: heartbeats, bells, models, and what operators decide about them.

-- This core claims no more for a version; other cores are rung for its waiting work.
local function let_go(core, version, envelope)
  call('ZREM', keys.holders(version), core)
  if call('HEXISTS', keys.WAITING, version) == 1 then ring_some(version, 1, envelope) end
end

-- Note a core's speed. A speed measured with enough work outlasts its process: it counts until the next process has
-- measured one.
local function keep_speed(core, speed, is_full)
  local TTL_S = 2592000
  if speed and is_full then
    call('SET', keys.full_speed(core), speed, 'EX', TTL_S)
  else
    speed = call('GET', keys.full_speed(core)) or speed
  end
  if speed then
    call('HSET', keys.SPEEDS, core, speed)
    call('SET', keys.LAST_SPEED, speed)
  end
end

-- beat{core, lease_ms, speed, full, out, fields, versions, leases} → {the revision of the plan, versions unknown…}
-- A core's heartbeat: its speed (`full`: measured with enough work), whether it is out of service, the versions it
-- holds, and the leases it works under. A lease that was taken back is not revived. Versions are unknown if Redis
-- restarted empty: the core announces them again.
define('beat', function(ask)
  local core, now, reply = ask.core, now_ms(), { call('GET', keys.PLAN) or '' }
  call('HSET', keys.core(core), 'beat_ms', now, unpack(ask.fields))
  call('PEXPIRE', keys.core(core), ask.lease_ms)
  call('ZADD', keys.CORES, now, core)
  if call(ask.out and 'SADD' or 'SREM', keys.OUT_OF_SERVICE, core) == 1 then
    mark('core', core .. (ask.out and ' is out of service' or ' is in service again'))
  end
  keep_speed(core, ask.speed, ask.full)
  for _, version in ipairs(ask.versions) do
    call('ZADD', keys.holders(version), now + ask.lease_ms, core)
    if call('HEXISTS', keys.MODELS, version) == 0 then reply[#reply + 1] = version end
  end
  for _, lease in ipairs(ask.leases) do call('ZADD', keys.LEASES, 'XX', now + ask.lease_ms, lease) end
  return reply
end)

-- write{commands} → their replies
-- Runs plain commands that must be carried out even if Redis is full.
define('write', function(ask)
  local replies = {}
  for i, command in ipairs(ask.commands) do replies[i] = call(unpack(command)) end
  return replies
end)

-- ring{core, envelope}: there is work for this core. If the core is working, it finds the work between two batches.
define('ring', function(ask) ring(ask.core, ask.envelope) end)

-- wake{core, envelope}: a starting process rings its own core, even if its predecessor left a bell set.
define('wake', function(ask)
  call('DEL', keys.bell(ask.core), keys.wake(ask.core))
  ring(ask.core, ask.envelope)
end)

-- Forget a core that no process serves any more, with the bells in its queue, and kombu's two entries for the queue.
-- The keeper removes the rest (`prune`).
function fleet.forget_core(core)
  local queue = queue_of(core)
  call('ZREM', keys.CORES, core)
  call('SREM', keys.OUT_OF_SERVICE, core)
  call('UNLINK', queue, '_kombu.binding.' .. queue, '_kombu.binding_permanent.' .. queue)
end

-- release{core, envelope, version}: see let_go
define('release', function(ask) let_go(ask.core, ask.version, ask.envelope) end)

-- leave{core, envelope, versions, gone}: this core claims no more. A core that is `gone` is removed from all lists, and
-- its queue is not read any more.
define('leave', function(ask)
  for _, version in ipairs(ask.versions) do let_go(ask.core, version, ask.envelope) end
  call('DEL', keys.core(ask.core), keys.bell(ask.core), keys.wake(ask.core))
  call('HDEL', keys.CLAIMED, ask.core)
  call('HDEL', keys.SPEEDS, ask.core)
  if ask.gone then fleet.forget_core(ask.core) end
end)

-- Every caller may read marks, but only admins may see the names of owners.
local function shown_name(ask) return ask.kind == 'owner' and 'an owner' or ask.kind .. ' ' .. ask.name end

-- pause{kind, name, by} → {the description of the pause, 1 if it is new}
-- Until `resume` nothing is claimed for a version, or of an owner. Work in progress is finished. A paused owner is
-- sorted behind all others: see join_shares.
define('pause', function(ask)
  local what = ask.kind .. ':' .. ask.name
  if call('HSETNX', keys.PAUSED, what, cjson.encode({ by = ask.by, at_ms = now_ms() })) == 0 then
    return { call('HGET', keys.PAUSED, what), 0 }
  end
  if ask.kind == 'owner' then
    for priority = 0, 2 do call('ZADD', keys.shares(priority), 'XX', PAUSED_SHARE, ask.name) end
  end
  mark('pause', shown_name(ask) .. ' is paused by ' .. ask.by)
  return { call('HGET', keys.PAUSED, what), 1 }
end)

-- A resumed owner starts level with the one served least: it gained no credit meanwhile.
local function resume_owner(owner, envelope)
  for priority = 0, 2 do
    level_owner(owner, priority)
    for _, name in ipairs(call('SMEMBERS', keys.owner_lanes(priority, owner))) do
      local version = string.gsub(name, '^%' .. LINE_MARK, '')
      if not is_paused('model', version) then ring_some(version, #holders_of(version), envelope) end
    end
  end
end

-- resume{kind, name, envelope} → 1 if it was paused
define('resume', function(ask)
  if call('HDEL', keys.PAUSED, ask.kind .. ':' .. ask.name) == 0 then return 0 end
  if ask.kind == 'owner' then
    resume_owner(ask.name, ask.envelope)
  else
    ring_some(ask.name, #holders_of(ask.name), ask.envelope)
  end
  mark('pause', shown_name(ask) .. ' goes on')
  return 1
end)

-- make_key{id, digest, owner, share, until_ms, fields}: an API key, whose share counts for its owner from now on
-- Keys of share 1 need no note before there is another share.
define('make_key', function(ask)
  local kept = call('HGET', keys.KEY_SHARES, ask.owner) or ''
  write_fields(keys.api_key(ask.digest), ask.fields)
  call('HSET', keys.API_KEYS, ask.id, ask.digest)
  call('INCR', keys.API_KEYS_CHANGED)
  if kept == '' and ask.share == 1 then return end
  set_shares(ask.owner, string.format('%s:%s:%.0f %s', ask.id, ask.share, ask.until_ms, kept))
end)

-- revoke_key{id} → the fields of the key, {} if there is none
define('revoke_key', function(ask)
  local digest = call('HGET', keys.API_KEYS, ask.id)
  if not digest then return {} end
  local key = keys.api_key(digest)
  local owner = call('HGET', key, 'owner')
  local kept = call('HGET', keys.KEY_SHARES, owner)
  call('HSETNX', key, 'revoked_ms', now_ms())
  call('INCR', keys.API_KEYS_CHANGED)
  if kept then set_shares(owner, (string.gsub(kept, ask.id .. ':%S+ ?', ''))) end
  return call('HGETALL', key)
end)

local function is_calibrated(summary) return cjson.decode(summary).calibrated == true end

-- announce{version, aliases}, summary: a version becomes known, with the aliases that a worker's settings give it. An
-- alias that was set through the API is not changed, and no alias comes to mean a closed version.
define('announce', function(ask, args)
  local known = call('HGET', keys.MODELS, ask.version)
  if known and is_calibrated(args[2]) and not is_calibrated(known) then mark('calibration', ask.version .. ' is calibrated') end
  call('HSET', keys.MODELS, ask.version, args[2])
  for _, alias in ipairs(ask.aliases) do
    call('HSET', keys.NAMED, alias, ask.version)
    if call('SISMEMBER', keys.PINNED, alias) == 0 and call('HEXISTS', keys.CLOSED, ask.version) == 0 then
      call('HSET', keys.ALIASES, alias, ask.version)
    end
  end
end)

-- set_alias{alias, weights, force, versions} → {'done'}, or why not: {'unknown' | 'closed' | 'not_held', version}
-- Lets an alias mean versions. All of them must take jobs, and be on a living core.
define('set_alias', function(ask)
  for _, version in ipairs(ask.versions) do
    if call('HEXISTS', keys.CLOSED, version) == 1 then return { 'closed', version } end
    if call('HEXISTS', keys.MODELS, version) == 0 then return { 'unknown', version } end
    if not (ask.force or is_held(version)) then return { 'not_held', version } end
  end
  call('HSET', keys.ALIASES, ask.alias, ask.weights)
  call('SADD', keys.PINNED, ask.alias)
  mark('alias', ask.alias .. ' means ' .. ask.weights)
  return { 'done' }
end)

-- unset_alias{alias} → {'done', what it means now or ''}, {'unset'} if it was not set by the API, or {'closed',
-- version}
-- The alias means again what the workers' settings say, or nothing.
define('unset_alias', function(ask)
  local named = call('HGET', keys.NAMED, ask.alias)
  if call('SISMEMBER', keys.PINNED, ask.alias) == 0 then return { 'unset' } end
  if named and call('HEXISTS', keys.CLOSED, named) == 1 then return { 'closed', named } end
  call('SREM', keys.PINNED, ask.alias)
  mark('alias', ask.alias .. ' means ' .. (named or 'nothing'))
  if named then
    call('HSET', keys.ALIASES, ask.alias, named)
  else
    call('HDEL', keys.ALIASES, ask.alias)
  end
  return { 'done', named or '' }
end)

-- set_placement{version, before, after, closes, force, mark} → {'done'}, {'changed'} or {'in_use', alias…}
-- A version's placement becomes `after` if it is still `before` ('' for none). A placement that closes the version, so
-- that it takes no new jobs, is refused while an alias means it, unless forced.
define('set_placement', function(ask)
  local version = ask.version
  if (call('HGET', keys.PLACEMENTS, version) or '') ~= ask.before then return { 'changed' } end
  if ask.closes and not ask.force then
    local users, all = { 'in_use' }, call('HGETALL', keys.ALIASES)
    for i = 1, #all, 2 do
      if string.find(' ' .. all[i + 1] .. ' ', ' ' .. version .. ' ', 1, true) then users[#users + 1] = all[i] end
    end
    if #users > 1 then return users end
  end
  call('HSET', keys.PLACEMENTS, version, ask.after)
  if ask.closes then
    call('HSETNX', keys.CLOSED, version, now_ms())
    for _, job in ipairs(call('ZRANGE', keys.LATER, 0, -1)) do
      if call('HGET', keys.job(job), 'version') == version then jobs.follow(job) end
    end
  else
    call('HDEL', keys.CLOSED, version)
  end
  call('INCR', keys.PLAN)
  mark(ask.mark[1], ask.mark[2])
  return { 'done' }
end)

-- tell_parts{serve, troubles: [[part, text]…], forget_ms}: what a `serve` finds wrong with its parts now
-- Entries older than `forget_ms` are deleted: a `serve` that was killed does not remove its own.
define('tell_parts', function(ask)
  local told, now = call('HGETALL', keys.PARTS), now_ms()
  for i = 1, #told, 2 do
    if now - cjson.decode(told[i + 1]).at_ms > ask.forget_ms then call('HDEL', keys.PARTS, told[i]) end
  end
  if #ask.troubles == 0 then
    call('HDEL', keys.PARTS, ask.serve)
  else
    call('HSET', keys.PARTS, ask.serve, cjson.encode({ at_ms = now, troubles = ask.troubles }))
  end
end)
