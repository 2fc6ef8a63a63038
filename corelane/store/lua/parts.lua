-- Parts: windows of a long item that its core leaves to cores without work. The core that claimed the item keeps it,
-- with its lease, and alone commits its result. It offers a few parts at a time, and collects what was found in them. A
-- part goes back to the core that offered it if its reader died, or if it was not taken. The claim on the item is the
-- fence: parts may be taken and answered only while the claim holds the item.
-- An offer is named `LEASE|JOB:FIRST`. Its hash has for each part, by the number that its core gave it (START): the
-- part, the lease of the core that has it (`START:by`), what was found (`START:found`), and what that cost
-- (`START:spent`: `LEASE PRICE SUMS`). Costs are kept there until the item is answered under this claim. If the claim
-- is lost, these costs are charged to no job, nor are those of the item's own core. An offer without `keeps` was made
-- by a version that did not keep costs.

-- In seconds. A core that offers parts renews its offer with each batch.
local OFFER_TTL_S = 60

-- The ref of an offer's item, as the claim has it; nil if the claim does not hold it any more.
local function offered_ref(offer)
  local lease, item = string.match(offer, '^([^|]+)|([^|]+)$')
  return lease and call('HGET', keys.claim(lease), item), lease
end

-- Cores without work that hold a version and can read parts, except `core`.
local function helpers_for(version, core)
  local found = {}
  for _, other in ipairs(without_work(holders_of(version))) do
    local alive_ms = other ~= core and call('ZSCORE', keys.HELPERS, other)
    if alive_ms and tonumber(alive_ms) >= now_ms() then found[#found + 1] = other end
  end
  return found
end

-- Count what was spent on an item's parts: for its job, or for no job if its claim `is_lost`.
function parts.settle_offer(lease, ref, is_lost)
  local hash = keys.offer(lease .. '|' .. ref.job .. ':' .. ref.first)
  local flat, job = call('HGETALL', hash), ref.job
  if #flat == 0 then return end
  for i = 1, #flat, 2 do
    local by, price, sums = string.match(flat[i + 1], '^(%S+) (%S+) (.+)$')
    if by and string.match(flat[i], ':spent$') then
      local core, answered, late, spent = string.match(by, '^(.*)#%d+$'), {}, {}, {}
      for sum in string.gmatch(sums, '%d+') do spent[#spent + 1] = tonumber(sum) end
      if not is_lost then
        if job_is_open(job) then answered[job] = true else late[job] = ref.owner end
      end
      hooks.spend({ spent = { [job] = spent }, price = price, core = core }, answered, late)
    end
  end
  call('UNLINK', hash)
end

on('give_back', function(lease, ref) parts.settle_offer(lease, ref, true) end)

-- Take a part for a core that found no other work.
-- → its lease, its offer, its start, its version, the item's ref, its bytes; nil if there is none
function parts.take(core, versions, lease_ms)
  for _, version in ipairs(versions) do
    local name = call('LPOP', keys.parts(version))
    while name do
      local offer, start = string.match(name, '^(.*)|(%d+)$')
      local ref = offer and offered_ref(offer)
      local part = ref and call('HGET', keys.offer(offer), start)
      if part and job_is_open(parse(ref).job) then
        local lease = string.format('%s#%.0f', core, next_fence())
        call('HSET', keys.offer(offer), start .. ':by', lease)
        call('ZADD', keys.LEASES, now_ms() + lease_ms, lease)
        return { lease, offer, start, version, ref, part }
      end
      name = call('LPOP', keys.parts(version))
    end
  end
end

-- share{core, lease, item, version, envelope, out: [start…], fresh: [start…], back}, a part for each that is fresh… →
-- {cores that could take parts, then for each part that is over: start, `found` or `back`, what was found or ''}
-- Updates the parts of an item: those that are `out`, then `fresh` ones. Up to `back` parts that were not taken go
-- back, the last first. So do parts whose core's lease is over, and parts that Redis has lost. Cores are rung while any
-- part waits: a core that could not take it a moment ago may be able to now.
define('share', function(ask, args)
  local offer, now, back = ask.lease .. '|' .. ask.item, now_ms(), ask.back
  local hash, list, reply, waiting = keys.offer(offer), keys.parts(ask.version), { 0 }, #ask.fresh
  if not offered_ref(offer) then
    call('UNLINK', hash)
    for _, start in ipairs(ask.out) do
      for _, each in ipairs({ start, 'back', '' }) do reply[#reply + 1] = each end
    end
    return reply
  end
  for i = #ask.out, 1, -1 do
    local start = string.format('%.0f', ask.out[i])
    local part, by, found = unpack(call('HMGET', hash, start, start .. ':by', start .. ':found'))
    local deadline = by and call('ZSCORE', keys.LEASES, by)
    local is_lost = not part or (by and not (deadline and tonumber(deadline) >= now))
    if part and not by and back > 0 then
      call('LREM', list, -1, offer .. '|' .. start)
      back, is_lost = back - 1, true
    elseif part and not by then
      waiting = waiting + 1
    end
    if found or is_lost then
      call('HDEL', hash, start, start .. ':by', start .. ':found')
      for _, each in ipairs({ ask.out[i], found and 'found' or 'back', found or '' }) do reply[#reply + 1] = each end
    end
  end
  for i, start in ipairs(ask.fresh) do
    start = string.format('%.0f', start)
    call('HSET', hash, start, args[i + 1], 'keeps', 1)
    call('RPUSH', list, offer .. '|' .. start)
  end
  call('EXPIRE', hash, OFFER_TTL_S)
  call('EXPIRE', list, OFFER_TTL_S)
  local helpers, rung = helpers_for(ask.version, ask.core), 0
  for _, core in ipairs(helpers) do
    if rung < waiting and ring(core, ask.envelope) then rung = rung + 1 end
  end
  reply[1] = #helpers
  return reply
end)

-- report_parts{core, envelope, parts: [[lease, offer, start, job, owner]…], spent, price, lost}, what was found in
-- each, '' for nothing… → parts refused
-- What was spent on a part is stored with it. A repeated report counts once.
define('report_parts', function(ask, args)
  local refused, answered, late = 0, {}, {}
  ask.spent, ask.price = ask.spent or {}, ask.price or '-'
  for i, part in ipairs(ask.parts) do
    local lease, offer, start, job, owner = unpack(part)
    local hash, found = keys.offer(offer), args[i + 1]
    local ref, at = offered_ref(offer)
    local is_ours = ref and call('HGET', hash, start .. ':by') == lease
    if not job_is_open(job) then
      late[job] = owner
    elseif is_ours and found ~= '' then
      call('HSET', hash, start .. ':found', found)
      answered[job] = true
    end
    local spent, before = ask.spent[job], call('HGET', hash, start .. ':spent')
    if answered[job] and is_ours and spent then
      call('HSET', hash, start .. ':spent', table.concat({ lease, ask.price, unpack(spent) }, ' '))
      ask.spent[job] = nil
    elseif before and string.match(before, '^%S+') == lease then
      ask.spent[job] = nil
    end
    if is_ours then
      ring(string.match(at, '^(.*)#%d+$'), ask.envelope)
    else
      refused = refused + 1
    end
    call('ZREM', keys.LEASES, lease)
  end
  hooks.spend(ask, answered, late)
  return refused
end)
