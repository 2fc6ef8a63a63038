-- place(version, before, after, closes, force) → {'done'}, {'changed'} or {'in_use', alias…}
-- A version's placement becomes `after` if it is still `before` ('' for none). One that closes the version, so that it takes
-- no more jobs, is refused while an alias means it, unless forced.
local version, before, after, closes, force = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1', ARGV[5] == '1'
if (redis.call('HGET', 'cl:placements', version) or '') ~= before then return { 'changed' } end
if closes and not force then
  local users, all = { 'in_use' }, redis.call('HGETALL', 'cl:aliases')
  for i = 1, #all, 2 do
    if string.find(' ' .. all[i + 1] .. ' ', ' ' .. version .. ' ', 1, true) then users[#users + 1] = all[i] end
  end
  if #users > 1 then return users end
end
redis.call('HSET', 'cl:placements', version, after)
if closes then
  redis.call('HSETNX', 'cl:closed', version, now_ms())
else
  redis.call('HDEL', 'cl:closed', version)
end
redis.call('INCR', 'cl:plan')
return { 'done' }
