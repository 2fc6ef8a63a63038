-- schedule(event, subject, owner, url, ttl, data, headers) → the delivery's id, the same if it was scheduled before
local event, subject, owner, url, ttl, data, headers = unpack(ARGV)
return schedule_delivery(event, subject, owner, url, now_ms(), tonumber(ttl), 'data', data, headers)
