-- alias(alias, weights, force, version…) → {'done'}, or why not: {'unknown' | 'closed' | 'not_held', version}
-- An alias comes to mean versions, all of which take jobs and are held by a living core or wait to be loaded on first use.
local alias, weights, force = ARGV[1], ARGV[2], ARGV[3] == '1'
for i = 4, #ARGV do
  local version = ARGV[i]
  if redis.call('HEXISTS', 'cl:closed', version) == 1 then return { 'closed', version } end
  if redis.call('HEXISTS', 'cl:models', version) == 0 then return { 'unknown', version } end
  local placement = redis.call('HGET', 'cl:placements', version)
  local lazy = placement and cjson.decode(placement).lazy
  if not (force or lazy) and redis.call('ZCOUNT', 'cl:holders:' .. version, now_ms(), '+inf') == 0 then
    return { 'not_held', version }
  end
end
redis.call('HSET', 'cl:aliases', alias, weights)
redis.call('SADD', 'cl:pinned', alias)
return { 'done' }
