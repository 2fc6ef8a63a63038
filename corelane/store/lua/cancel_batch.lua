-- cancel_batch(batch): what is answered by now is kept; a batch that is being finished, or final, stays as it is
local key = 'cl:batch:{' .. ARGV[1] .. '}'
local status = redis.call('HGET', key, 'status')
if status ~= 'validating' and status ~= 'in_progress' then return 0 end
redis.call('HSET', key, 'status', 'cancelling', 'cancelling_ms', now_ms())
return 1
