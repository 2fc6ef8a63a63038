-- commit(lease, core, ttl, then per stretch: job, first, tokens, succeeded, failed, results) → stretches refused
-- The fence: a stretch counts only while the claim still holds it. Whoever comes late finds it gone.
local lease, core, ttl = ARGV[1], ARGV[2], tonumber(ARGV[3])
local claim, refused, done = 'cl:claim:' .. lease, 0, 0
for i = 4, #ARGV, 6 do
  local job, first = ARGV[i], ARGV[i + 1]
  if redis.call('HDEL', claim, job .. ':' .. first) == 1 then
    redis.call('HINCRBY', 'cl:tokens', core, -tonumber(ARGV[i + 2]))
    done = done + tonumber(ARGV[i + 2])
    answer(job, first, ARGV[i + 5], tonumber(ARGV[i + 3]), tonumber(ARGV[i + 4]), ttl)
  else
    refused = refused + 1
  end
end
if done > 0 then
  local second = 'cl:rate:' .. math.floor(now_ms() / 1000)
  redis.call('INCRBY', second, done)
  redis.call('EXPIRE', second, 60)
end
if redis.call('EXISTS', claim) == 0 then redis.call('ZREM', 'cl:leases', lease) end
return refused
