-- ended(most) → {per job that became final since the last time: job, status, then the fields of FIELDS}
-- Each end is told once, to whichever keeper asks first, and counted. The first who ever asks hears of the last minute.
local FIRST_MS = 60000
local FIELDS = { 'owner', 'version', 'total', 'succeeded', 'failed', 'canceled', 'expired', 'created_ms', 'started_ms',
  'finished_ms', 'request_id' }
local last = redis.call('GET', 'cl:told') or now_ms() - FIRST_MS .. '-0'
local ended, counts = {}, {}
for _, entry in ipairs(redis.call('XRANGE', 'cl:events', '(' .. last, '+', 'COUNT', ARGV[1])) do
  local job, status = entry[2][2], entry[2][4]
  ended[#ended + 1] = { job, status, unpack(redis.call('HMGET', job_key(job), unpack(FIELDS))) }
  counts[status] = (counts[status] or 0) + 1
  last = entry[1]
end
for status, count in pairs(counts) do redis.call('HINCRBY', 'cl:ended', status, count) end
if #ended > 0 then redis.call('SET', 'cl:told', last) end
return ended
