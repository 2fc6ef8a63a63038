-- fix(id, payload) → the bytes of an event: those that were fixed first, whoever fixed them; nothing if it is forgotten
local key = delivery_key(ARGV[1])
if redis.call('HEXISTS', key, 'host') == 0 then return false end
redis.call('HSETNX', key, 'payload', ARGV[2])
redis.call('HDEL', key, 'data', 'record')
return redis.call('HGET', key, 'payload')
