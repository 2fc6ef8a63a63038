-- own(owner, most) → 1 if the owner may have jobs, files and batches, 0 if so many others have
if not redis.call('ZSCORE', 'cl:owners', ARGV[1]) and redis.call('ZCARD', 'cl:owners') >= tonumber(ARGV[2]) then return 0 end
redis.call('ZADD', 'cl:owners', now_ms(), ARGV[1])
return 1
