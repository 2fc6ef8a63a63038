-- What the items of a version cost lately: one text for each class, read by `store.rates`. `ITEMS ESTIMATED TOKENS WINDOWS
-- CORE_US` are sums over items: how many, their estimated tokens, their tokens, windows and core microseconds. What is older
-- counts less: the more work a class has done since, by windows or by core time, the less of it is left. So a change of model
-- or tokenizer shows within minutes of work, and a night without any forgets nothing. `AT ITEMS TOKENS CORE_US` follow, of the
-- last moments only: what is left of them fades with the work of the whole version, whose core microseconds are `done`; AT is
-- where that stood. They tell how fast the machines are now, also to classes of which there was no work lately.
local LASTING_WINDOWS, LASTING_US = 3000, 120000000

-- What is left of recent sums after other work of the version, for each core that holds it.
local LASTING_RECENT_US = 1000000

-- Costs of a version without work, and its residuals, are forgotten after this time, in seconds (30 days).
local COSTS_TTL_S = 2592000

-- Add what a core learned: version, class, then the sums. Its `price` is that of the version where no core lives.
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

-- Note how long a job took against what was reckoned for it, `KIND MS`, for forecasts to come: the last residuals of its kind,
-- as parts of a logarithm. See corelane.domain.forecast. A pause is no fault of forecasts.
on('finished', function(job)
  if not (job.commit and job.reckoned) or job.was_paused then return end
  local kind, ms = string.match(job.reckoned, '^(%d+) (%d+%.?%d*)$')
  if not kind then return end
  local key, off = keys.residuals(job.version), math.log(math.max(job.took_ms, 0.5) / math.max(ms, 0.5))
  off = math.max(-MOST_RESIDUAL, math.min(MOST_RESIDUAL, math.floor(HUNDREDTHS * off + 0.5)))
  off = string.format('%+0' .. RESIDUAL_CHARS .. 'd', off)
  local kept = call('HGET', key, kind)
  call('HSET', key, kind, string.sub((kept or '') .. off, -RESIDUAL_CHARS * RESIDUALS_KEPT))
  -- Heartbeats with costs put this off: see `learn`.
  if not kept then call('EXPIRE', key, COSTS_TTL_S) end
end, { 'reckoned', 'version' })
