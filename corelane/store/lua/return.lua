-- return(lease, only_lapsed, ttl, envelope, stretches) → stretches taken back
-- stretches: JSON [{ref, version, refs: [ref…], lost: [[first, results]…]}…], as the keeper worked them out. Only what the
-- claim still holds is taken back: a commit may have come in between, a heartbeat may have renewed the lease.
local lease, only_lapsed, ttl, envelope = ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
local deadline = redis.call('ZSCORE', 'cl:leases', lease)
if only_lapsed == '1' and deadline and tonumber(deadline) > now_ms() then return 0 end
local claim, core, back = 'cl:claim:' .. lease, string.match(lease, '^(.*)#%d+$'), 0
for _, stretch in ipairs(cjson.decode(ARGV[5])) do
  local ref = parse(stretch.ref)
  if release_stretch(claim, core, ref) then
    back = back + 1
    for _, lost in ipairs(stretch.lost) do answer(ref.job, lost[1], lost[2], 0, 1, ttl) end
    if is_open(redis.call('HGET', job_key(ref.job), 'status')) then
      enqueue(stretch.version, stretch.refs, envelope, true)
    end
  end
end
if redis.call('EXISTS', claim) == 0 then redis.call('ZREM', 'cl:leases', lease) end
return back
