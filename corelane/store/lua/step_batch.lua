-- step_batch(batch, holder, from, to, ttl_ms, fields, files, fence) → 1 if it went on, 0 if it stands elsewhere or another has the turn
-- fields: JSON {name: text}; files: JSON [{id, ttl_ms, fields: [name, text…]}…], known from now on. With ttl_ms above 0 the
-- batch is final and forgotten after that time.
local batch, holder, from, to, ttl_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local key, now = 'cl:batch:{' .. batch .. '}', now_ms()
if redis.call('GET', 'cl:batcher') ~= holder then return 0 end
if (redis.call('HGET', 'cl:fences', 'cl:batcher') or ARGV[8]) ~= ARGV[8] then return 0 end
local status, owner = unpack(redis.call('HMGET', key, 'status', 'owner'))
if status ~= from then return 0 end
for name, text in pairs(cjson.decode(ARGV[6])) do redis.call('HSET', key, name, text) end
for _, file in ipairs(cjson.decode(ARGV[7])) do keep_file(file.id, owner, file.ttl_ms, file.fields) end
if to ~= from then redis.call('HSET', key, 'status', to, to .. '_ms', now) end
if ttl_ms > 0 then
  redis.call('ZREM', 'cl:batching', batch)
  redis.call('ZADD', 'cl:retiring', now + ttl_ms, batch)
end
return 1
