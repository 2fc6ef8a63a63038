-- lease(key, holder, ttl_ms) → the holder's fence, now that the lease is its own for ttl_ms; 0 if it is another's
-- With 0 ms the lease ends if it is the holder's. A holder that extends its lease keeps its fence.
local key, holder, ttl_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])
local found = redis.call('GET', key)
if found and found ~= holder then return 0 end
if ttl_ms == 0 then
  redis.call('DEL', key)
  return 0
end
redis.call('SET', key, holder, 'PX', ttl_ms)
return found and tonumber(redis.call('HGET', 'cl:fences', key)) or redis.call('HINCRBY', 'cl:fences', key, 1)
