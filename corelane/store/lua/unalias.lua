-- unalias(alias) → {'done', what it means now or ''}, {'unset'} if nobody had set it, or {'closed', version}
-- An alias means again what the workers' settings mean by it, or nothing.
local alias = ARGV[1]
local named = redis.call('HGET', 'cl:named', alias)
if redis.call('SISMEMBER', 'cl:pinned', alias) == 0 then return { 'unset' } end
if named and redis.call('HEXISTS', 'cl:closed', named) == 1 then return { 'closed', named } end
redis.call('SREM', 'cl:pinned', alias)
if named then
  redis.call('HSET', 'cl:aliases', alias, named)
else
  redis.call('HDEL', 'cl:aliases', alias)
end
return { 'done', named or '' }
