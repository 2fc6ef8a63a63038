-- What the items of a version cost lately, by class: one text for each class, read by `store.rates`. Sums of items, their
-- estimated tokens, their tokens, windows and core microseconds. What is older counts less: the more work a class has
-- done since, by windows or by core time, the less of it is left. So a change of model or machine shows within minutes
-- of work, and a night without any forgets nothing.
local LASTING_WINDOWS, LASTING_US = 3000, 120000000

-- What is left of a price's share after other work; a new price is believed sooner than a new cost.
local LASTING_PRICE_US = 20000000

-- Costs of a version without work are forgotten after this time, in seconds (30 days).
local COSTS_TTL_S = 2592000

-- Add what a core learned: version, class, then the sums.
local function learn(version, class, added)
  local key, sums = keys.costs(version), {}
  local left = math.exp(-math.max(added[4] / LASTING_WINDOWS, added[5] / LASTING_US))
  for number in string.gmatch(call('HGET', key, class) or '', '%S+') do sums[#sums + 1] = tonumber(number) end
  for i = 1, 5 do sums[i] = string.format('%.1f', (sums[i] or 0) * left + added[i]) end
  call('HSET', key, class, table.concat(sums, ' '))
  call('EXPIRE', key, COSTS_TTL_S)
end

-- Add the price at which a core did so much work for a version: `prices` is `PRICE CORE_US`, for each that did some lately.
local function learn_price(version, price, core_us)
  local key, left, prices, found = keys.costs(version), math.exp(-core_us / LASTING_PRICE_US), {}, false
  for its_price, us in string.gmatch(call('HGET', key, 'prices') or '', '(%S+) (%S+)') do
    us = us * left + (its_price == price and core_us or 0)
    found = found or its_price == price
    if us >= 1 then prices[#prices + 1] = string.format('%s %.0f', its_price, us) end
  end
  if not found then prices[#prices + 1] = string.format('%s %.0f', price, core_us) end
  call('HSET', key, 'prices', table.concat(prices, ' '))
end
