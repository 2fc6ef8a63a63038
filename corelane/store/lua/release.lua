-- release(core, envelope, version): this core claims for the version no more; what waits is rung for elsewhere.
redis.call('ZREM', 'cl:holders:' .. ARGV[3], ARGV[1])
if redis.call('HEXISTS', 'cl:waiting', ARGV[3]) == 1 then ring_some(ARGV[3], 1, ARGV[2]) end
return 1
