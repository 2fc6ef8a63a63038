-- announce(version, summary, alias…): a version becomes known, with the aliases that a worker's settings mean it by. An alias
-- that was set through the API stays where it is, and none comes to mean a version that is closed.
local version, summary = ARGV[1], ARGV[2]
redis.call('HSET', 'cl:models', version, summary)
for i = 3, #ARGV do
  redis.call('HSET', 'cl:named', ARGV[i], version)
  if redis.call('SISMEMBER', 'cl:pinned', ARGV[i]) == 0 and redis.call('HEXISTS', 'cl:closed', version) == 0 then
    redis.call('HSET', 'cl:aliases', ARGV[i], version)
  end
end
return 1
