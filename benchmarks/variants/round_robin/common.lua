
-- Read behind per_core/common.lua: the cores' lanes are filled in turn whatever waits there, and nothing is stolen.
steals = false

local function enqueue(version, refs, envelope, to_front)
  if #refs == 0 then return end
  local cores = redis.call('ZRANGEBYSCORE', 'cl:holders:' .. version, now_ms(), '+inf')
  if #cores == 0 then error('no core holds ' .. version) end
  table.sort(cores)
  local turn, chosen = redis.call('INCRBY', 'cl:turn:' .. version, #refs) - #refs, {}
  for i = 1, #cores do chosen[i] = {} end
  for i, text in ipairs(refs) do table.insert(chosen[(turn + i) % #cores + 1], text) end
  for i, core in ipairs(cores) do
    if #chosen[i] > 0 then put(core, version, chosen[i], envelope, to_front) end
  end
end
