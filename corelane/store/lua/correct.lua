-- correct(core, then per stretch: lease, ref) → how many charges were corrected
-- What stretches in progress cost, as their core found when it read them: each ref carries the tokens it is to be charged.
-- The ref in the claim says what is charged, so this counts once however often it is repeated.
local core, corrected = ARGV[1], 0
for i = 2, #ARGV, 2 do
  local claim, ref = 'cl:claim:' .. ARGV[i], parse(ARGV[i + 1])
  local name = ref.job .. ':' .. ref.first
  local held = redis.call('HGET', claim, name)
  if held and held ~= ARGV[i + 1] then
    local more = ref.tokens - parse(held).tokens
    redis.call('HSET', claim, name, ARGV[i + 1])
    charge('cl:held', core, ref, more)
    charge_share(ref, more)
    corrected = corrected + 1
  end
end
return corrected
