-- The overview: whose work waits.

-- owners_with_work{most, jobs} → {owner, tokens not answered, open jobs, their items or -1 with more than `jobs` jobs, age in
--   ms of the oldest}…, of at most `most` owners, those with the most tokens first
define('owners_with_work', function(ask)
  local tokens, owners, found = {}, {}, {}
  for _, key in ipairs({ keys.OWED, keys.UNFED }) do
    local all = call('HGETALL', key)
    for i = 1, #all, 2 do
      local owner = all[i]
      if not tokens[owner] then owners[#owners + 1] = owner end
      tokens[owner] = (tokens[owner] or 0) + all[i + 1]
    end
  end
  table.sort(owners, function(a, b)
    if tokens[a] ~= tokens[b] then return tokens[a] > tokens[b] end
    return a < b
  end)
  for place = 1, math.min(#owners, ask.most) do
    local owner, items = owners[place], 0
    local open = keys.listed('open', owner)
    local count, first = call('ZCARD', open), call('ZRANGE', open, 0, ask.jobs - 1)
    for _, job in ipairs(first) do items = items + (call('HGET', keys.job(job), 'left') or 0) end
    local created = first[1] and call('HGET', keys.job(first[1]), 'created_ms') or now_ms()
    found[place] = { owner, tokens[owner], count, count > ask.jobs and -1 or items, now_ms() - created }
  end
  return found
end, 'no-writes')
