-- Secrets that sign an owner's webhooks. cl:secrets has for each owner a list as JSON, newest first. An entry has id,
-- value, created_ms and, if a newer one replaces it, ends_ms. The newest never ends. An entry `service` without a value
-- stands for the service's secret: it signs as well for a time when an owner makes its first own secret. An owner
-- without an entry has none.

-- The secrets that sign an owner's webhooks now. Those that have ended are deleted here.
local function living(owner)
  local kept, list = {}, cjson.decode(call('HGET', keys.SECRETS, owner) or '[]')
  for _, each in ipairs(list) do
    if not each.ends_ms or each.ends_ms > now_ms() then kept[#kept + 1] = each end
  end
  if #kept < #list then call('HSET', keys.SECRETS, owner, cjson.encode(kept)) end
  return kept
end

-- read_secrets{owner} → the list as JSON, `{}` if there is none
define('read_secrets', function(ask) return cjson.encode(living(ask.owner)) end)

-- add_secret{owner, id, overlap_ms, most, is_rotation}, value → ok; taken, if there is one already and this is no
-- rotation; none, if there is none to rotate; full
-- Earlier secrets end after `overlap_ms`, or sooner if that was set before. May be repeated.
define('add_secret', function(ask, args)
  local now, before, kept, own = now_ms(), living(ask.owner), {}, 1
  if before[1] and before[1].id == ask.id then return 'ok' end
  if ask.is_rotation and not before[1] then return 'none' end
  if before[1] and not ask.is_rotation then return 'taken' end
  if not before[1] then before = { { id = 'service' } } end
  kept[1] = { id = ask.id, value = args[2], created_ms = now }
  for _, each in ipairs(before) do
    each.ends_ms = math.min(each.ends_ms or math.huge, now + ask.overlap_ms)
    if each.ends_ms > now then
      kept[#kept + 1] = each
      if each.value then own = own + 1 end
    end
  end
  if own > ask.most then return 'full' end
  call('HSET', keys.SECRETS, ask.owner, cjson.encode(kept))
  return 'ok'
end)

-- remove_secret{owner, id} → ok; none, if there is none of this id; newest, if older ones of the owner would be left
-- After its last own secret is removed, the service's secret signs for the owner again.
define('remove_secret', function(ask)
  local kept, own, place = {}, 0, nil
  for i, each in ipairs(living(ask.owner)) do
    if each.id == ask.id then place = i else kept[#kept + 1] = each end
    if each.id ~= ask.id and each.value then own = own + 1 end
  end
  if not place then return 'none' end
  if place == 1 and own > 0 then return 'newest' end
  if own > 0 then
    call('HSET', keys.SECRETS, ask.owner, cjson.encode(kept))
  else
    call('HDEL', keys.SECRETS, ask.owner)
  end
  return 'ok'
end)
