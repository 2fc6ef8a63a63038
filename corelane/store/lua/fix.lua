-- fix(id, payload) → the bytes of an event that any sender kept first; nothing if it is forgotten
local key = delivery_key(ARGV[1])
if redis.call('HEXISTS', key, 'host') == 0 then return false end
redis.call('HSETNX', key, 'payload', ARGV[2])
redis.call('HDEL', key, 'data', 'record')
return redis.call('HGET', key, 'payload')
