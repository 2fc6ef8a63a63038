-- partial(lease, then per item: job, first of its stretch, what was found as JSON) → how many were told of
-- The best answers so far of items in progress. The fence: only what the claim still holds is told of, so nothing after
-- an item's answer, and nothing from a core whose lease was taken back.
local claim, told = 'cl:claim:' .. ARGV[1], 0
for i = 2, #ARGV, 3 do
  local job, first = ARGV[i], ARGV[i + 1]
  local is_held = redis.call('HEXISTS', claim, job .. ':' .. first) == 1
  if is_held and is_open(redis.call('HGET', job_key(job), 'status')) then
    tell(job, 'item.partial', 'data', ARGV[i + 2])
    told = told + 1
  end
end
return told
