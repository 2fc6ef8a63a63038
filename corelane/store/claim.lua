-- claim(core, tokens, refs, lease_ms, linger, version…) → {lease, ref, version, ref, version, …} or {}
-- Oldest first, up to the token budget, at least one. A ref that has failed before is claimed alone. "Nothing there" and
-- "the bell may ring again" are one step, so no wake-up is lost.
local core, budget, max_refs, lease_ms, linger = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local now, tokens, taken, held, alone = now_ms(), 0, {}, {}, false
redis.call('HSET', 'cl:claimed', core, now)
for v = 6, #ARGV do
  local lane = 'cl:lane:' .. core .. ':' .. ARGV[v]
  while not alone and tokens < budget and #held < 2 * max_refs do
    local ref = redis.call('LINDEX', lane, 0)
    if not ref then break end
    local job, first, cost, attempt = parse(ref)
    if attempt > 1 and #taken > 0 then break end
    redis.call('LPOP', lane)
    local status = redis.call('HGET', job_key(job), 'status')
    if is_open(status) then
      if status == 'queued' then redis.call('HSET', job_key(job), 'status', 'running', 'started_ms', now) end
      tokens, alone = tokens + cost, attempt > 1
      taken[#taken + 1], taken[#taken + 2] = ref, ARGV[v]
      held[#held + 1], held[#held + 2] = job .. ':' .. first, ref
    else
      redis.call('HINCRBY', 'cl:tokens', core, -cost)
    end
  end
end
if #taken == 0 then
  if linger == '1' then
    redis.call('SET', 'cl:bell:' .. core, 'l', 'EX', 5)
  else
    redis.call('DEL', 'cl:bell:' .. core, 'cl:wake:' .. core)
  end
  return {}
end
local lease = core .. '#' .. redis.call('INCR', 'cl:fence')
redis.call('HSET', 'cl:claim:' .. lease, unpack(held))
redis.call('ZADD', 'cl:leases', now + lease_ms, lease)
redis.call('SET', 'cl:bell:' .. core, 'r', 'EX', 30)
table.insert(taken, 1, lease)
return taken
