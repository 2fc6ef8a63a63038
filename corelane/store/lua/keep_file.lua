-- keep_file(file, owner, ttl_ms, (field, value)…) → created_ms
local fields = {}
for i = 4, #ARGV do fields[#fields + 1] = ARGV[i] end
return keep_file(ARGV[1], ARGV[2], tonumber(ARGV[3]), fields)
