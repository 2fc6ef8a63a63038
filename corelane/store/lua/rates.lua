-- What the items of a version cost recently: one text for each class, read by `store.rates`.
-- `ITEMS ESTIMATED TOKENS WINDOWS CORE_US` are sums over items: their number, estimated tokens, tokens, windows and
-- core microseconds. Older items count less: sums fade with the work that the class has done since, by windows or by
-- core time. So a change of model or tokenizer shows within minutes of work, and a night without work changes nothing.
-- `AT ITEMS TOKENS CORE_US` follow, for the last moments only. These sums fade with the work of the whole version,
-- whose core microseconds are `done`; AT is the value of `done` at their last update. They tell how fast the machines
-- are now, also for classes that had no work in the last moments.
local LASTING_WINDOWS, LASTING_US = 3000, 120000000

-- How fast recent sums fade with other work of the version, for each core that holds it.
local LASTING_RECENT_US = 1000000

-- Costs of a version without work, and its residuals, are forgotten after this time, in seconds (30 days).
local COSTS_TTL_S = 2592000

-- Add what a core measured: version, class, then the sums. The version keeps this core's `price` for when no core is
-- alive.
local function learn(version, class, added, price)
  local key, sums = keys.costs(version), {}
  local done = call('HINCRBY', key, 'done', added[5])
  for number in string.gmatch(call('HGET', key, class) or '', '%S+') do sums[#sums + 1] = tonumber(number) end
  local left = math.exp(-math.max(added[4] / LASTING_WINDOWS, added[5] / LASTING_US))
  local cores = math.max(1, call('ZCARD', keys.holders(version)))
  local recent = math.exp(-(done - (sums[6] or done)) / LASTING_RECENT_US / cores)
  for i = 1, 5 do sums[i] = (sums[i] or 0) * left + added[i] end
  for i, place in ipairs({ 1, 3, 5 }) do sums[6 + i] = (sums[6 + i] or 0) * recent + added[place] end
  sums[6] = done
  for i = 1, 9 do sums[i] = string.format('%.1f', sums[i]) end
  call('HSET', key, class, table.concat(sums, ' '), 'price', price)
  call('EXPIRE', key, COSTS_TTL_S)
  call('EXPIRE', keys.residuals(version), COSTS_TTL_S)
end

on('beat', function(ask, price)
  for _, cost in ipairs(ask.costs) do learn(cost[1], cost[2], cost[3], price) end
end)

-- Compare how long a job took with its forecast, `KIND MS`, for later forecasts. The last residuals of its kind are
-- kept, as hundredths of a logarithm; see corelane.domain.forecast. Jobs that were paused are left out.
on('finished', function(job)
  if not (job.commit and job.reckoned) or job.was_paused then return end
  local kind, ms = string.match(job.reckoned, '^(%d+) (%d+%.?%d*)$')
  if not kind then return end
  local key, off = keys.residuals(job.version), math.log(math.max(job.took_ms, 0.5) / math.max(ms, 0.5))
  off = math.max(-MOST_RESIDUAL, math.min(MOST_RESIDUAL, math.floor(HUNDREDTHS * off + 0.5)))
  off = string.format('%+0' .. RESIDUAL_CHARS .. 'd', off)
  local kept = call('HGET', key, kind)
  call('HSET', key, kind, string.sub((kept or '') .. off, -RESIDUAL_CHARS * RESIDUALS_KEPT))
  -- Heartbeats with costs extend this: see `learn`.
  if not kept then call('EXPIRE', key, COSTS_TTL_S) end
end, { 'reckoned', 'version' })
