-- feed(job, fed, fed_after, bytes_after, tokens_after, envelope, ref…) → 1 if fed, 0 if somebody else was first, -1 if final
-- The next slices of a job whose items stand in a file; their payloads were written just before.
local job, key = ARGV[1], job_key(ARGV[1])
local status, version, fed = unpack(redis.call('HMGET', key, 'status', 'version', 'fed'))
if not is_open(status) then return -1 end
if fed ~= ARGV[2] then return 0 end
local account, before = unfed(job)
redis.call('HSET', key, 'fed', ARGV[3], 'fed_bytes', ARGV[4], 'fed_tokens', ARGV[5])
local _, left = unfed(job)
add('cl:unfed', account, left - before)
local refs = {}
for i = 7, #ARGV do refs[#refs + 1] = ARGV[i] end
enqueue(version, refs, ARGV[6], false)
return 1
