-- leave(core, version…): nothing more is routed here; the keeper moves what still waits.
local core = ARGV[1]
for i = 2, #ARGV do redis.call('ZREM', 'cl:holders:' .. ARGV[i], core) end
redis.call('DEL', 'cl:core:' .. core, 'cl:bell:' .. core, 'cl:wake:' .. core)
redis.call('HDEL', 'cl:claimed', core)
redis.call('HDEL', 'cl:speeds', core)
return 1
