-- take_due(limit, lease_ms, most) → deliveries to try now, at most `limit`, and `most` of a host under way at a time
-- Each is due again after `lease_ms` unless it is held or its outcome is reported first. Hosts whose circuit is open are not
-- looked at.
local limit, lease_ms, most = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local HOSTS_PER_LOOK = 200
local now, taken = now_ms(), {}
for _, host in ipairs(redis.call('ZRANGEBYSCORE', 'cl:due', '-inf', now, 'LIMIT', 0, HOSTS_PER_LOOK)) do
  local line, room = 'cl:due:' .. host, host_room(host, now, most)
  local count = math.min(room, limit - #taken)
  if count > 0 then
    for _, id in ipairs(redis.call('ZRANGEBYSCORE', line, '-inf', now, 'LIMIT', 0, count)) do
      if redis.call('EXISTS', delivery_key(id)) == 1 then
        redis.call('ZADD', line, now + lease_ms, id)
        redis.call('ZADD', 'cl:flight:' .. host, now + lease_ms, id)
        taken[#taken + 1] = id
      else
        redis.call('ZREM', line, id)
      end
    end
  end
  settle_host(host, host_room(host, now, most))
  if #taken >= limit then break end
end
return taken
