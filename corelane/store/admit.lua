-- admit(model) → {version or nil, tokens in the lanes and in files as owner:priority, tokens…, speeds of the living cores that hold it, open jobs by priority}
-- All that is asked before a job is taken in. Writes nothing.
local version = redis.call('HEXISTS', 'cl:models', ARGV[1]) == 1 and ARGV[1] or redis.call('HGET', 'cl:aliases', ARGV[1])
local speeds, open = {}, {}
if version then
  local cores = redis.call('ZRANGEBYSCORE', 'cl:holders:' .. version, now_ms(), '+inf')
  if #cores > 0 then speeds = redis.call('HMGET', 'cl:speeds', unpack(cores)) end
end
for priority = 0, 2 do open[priority + 1] = redis.call('SCARD', 'cl:open:' .. priority) end
return { version or false, redis.call('HGETALL', 'cl:owed'), redis.call('HGETALL', 'cl:unfed'), speeds, open }
