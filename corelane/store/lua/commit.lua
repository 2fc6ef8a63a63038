-- commit(lease, core, ttl, then per stretch: ref, succeeded, failed, results) → stretches refused
-- The refs carry the tokens that were found when the stretches were read: that is what their owners are charged.
-- The fence: a stretch counts only while the claim still holds it. Whoever comes late finds it gone. The payload of a
-- slice that was answered whole goes at once; what was cut from one stays with it until the job is final. One in which
-- an item failed stays for a retry, unless its items stand in a file.
local lease, core, ttl = ARGV[1], ARGV[2], tonumber(ARGV[3])
local claim, refused, done = 'cl:claim:' .. lease, 0, {}
for i = 4, #ARGV, 4 do
  local ref = parse(ARGV[i])
  local charged = release_stretch(claim, core, ref)
  if charged then
    charge_share(ref, ref.tokens - charged)
    done[ref.owner] = (done[ref.owner] or 0) + ref.tokens
    local wanted = answer(ref.job, ref.first, ARGV[i + 3], tonumber(ARGV[i + 1]), tonumber(ARGV[i + 2]), ttl)
    local is_spent = ARGV[i + 2] == '0' or redis.call('HEXISTS', job_key(ref.job), 'file') == 1
    if wanted and ref.attempt == 1 and is_spent then redis.call('HDEL', in_key(ref.job), ref.payload) end
  else
    refused = refused + 1
  end
end
local second = 'cl:rate:' .. math.floor(now_ms() / 1000)
for owner, tokens in pairs(done) do
  redis.call('HINCRBY', second, owner, tokens)
  redis.call('EXPIRE', second, 60)
end
if redis.call('EXISTS', claim) == 0 then redis.call('ZREM', 'cl:leases', lease) end
return refused
