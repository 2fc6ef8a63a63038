-- drain(seconds) → {tokens answered in each of the last full seconds, newest first; speeds of the cores with work}
-- What tells how fast waiting work goes down. A core has work if it holds some, or a version that some waits for.
local now_s, answered, cores, names = math.floor(now_ms() / 1000), {}, {}, {}
for ago = 1, tonumber(ARGV[1]) do
  local total = 0
  for _, tokens in ipairs(redis.call('HVALS', 'cl:rate:' .. (now_s - ago))) do total = total + tokens end
  answered[ago] = total
end
for _, core in ipairs(redis.call('HKEYS', 'cl:held')) do cores[core] = true end
for _, version in ipairs(redis.call('HKEYS', 'cl:waiting')) do
  for _, core in ipairs(redis.call('ZRANGEBYSCORE', 'cl:holders:' .. version, now_ms(), '+inf')) do cores[core] = true end
end
for core in pairs(cores) do names[#names + 1] = core end
return { answered, #names > 0 and redis.call('HMGET', 'cl:speeds', unpack(names)) or {} }
