-- leave(core, envelope, version…): nothing more is claimed here; what waits is rung for elsewhere.
local core, envelope = ARGV[1], ARGV[2]
for i = 3, #ARGV do redis.call('ZREM', 'cl:holders:' .. ARGV[i], core) end
redis.call('DEL', 'cl:core:' .. core, 'cl:bell:' .. core, 'cl:wake:' .. core)
redis.call('HDEL', 'cl:claimed', core)
redis.call('HDEL', 'cl:speeds', core)
for i = 3, #ARGV do
  if redis.call('HEXISTS', 'cl:waiting', ARGV[i]) == 1 then ring_some(ARGV[i], 1, envelope) end
end
return 1
