-- Reuse: one result for equal items of one owner. A digest identifies an item with its owner, version and options. A
-- job of few items has their digests in its hash (`digests`), one after the other. See corelane.domain.reuse.
-- While an item is claimed, keys.COMPUTING names it by its digest: it leads. Equal items that are submitted or claimed
-- meanwhile follow it: they have no ref and no claim. They end with its result, in the step that stores it. If its
-- result is not valid for them, or it is not claimed any more, they go back into the lanes. Followers are single items
-- at their first attempt, and never of a higher priority than their leader. So an item is computed alone from its
-- second attempt on, and no item waits for one that is not in progress. An entry whose claim is gone is ignored,
-- however it ended.
-- Results that had followers are kept for a moment, so that a burst that lasts longer than one computation is computed
-- once. If the cache is on, all results of succeeded items are kept up to a number of bytes; the oldest go first.

local MOST_FOLLOWERS, FOLLOWED_CHECK_MS = 1000, 10000

-- What is kept without a cache, in bytes and seconds; and what Redis needs for an entry in addition to its text.
local KEPT_BYTES, KEPT_S, ENTRY_BYTES = 1048576, 5, 400

-- Most entries removed in one step, so that a lowered bound does not block Redis.
local MOST_EVICTED = 1000

-- Errors that depend only on the item, as those of a text that is too long: equal items fail with them as well.
local OWN_ERROR = '^,"status":"failed".*"error":{"code":"([a-z_]+)"'
local OWN_ERRORS = { too_long = true, too_many_windows = true, not_calibrated = true }

function reuse.digest_at(digests, place)
  return string.sub(digests, place * DIGEST_CHARS + 1, (place + 1) * DIGEST_CHARS)
end

local function digests_from(digests, first, count)
  local found = {}
  for i = 1, count do found[i] = reuse.digest_at(digests, first + i - 1) end
  return found
end

-- The cache. `cache` is {bytes, seconds}, as the calling process is set; nil if the cache is off.

local function entry_bytes(text) return #text + ENTRY_BYTES end

local function drop_entry(entry)
  local digest, owner = string.match(entry, '^(%S+) (.*)$')
  call('ZREM', keys.CACHED, entry)
  local text = call('HGET', keys.cache(owner), digest)
  if not text then return end
  call('HDEL', keys.cache(owner), digest)
  if call('DECRBY', keys.CACHE_BYTES, entry_bytes(text)) <= 0 then call('DEL', keys.CACHE_BYTES) end
end

-- Remove entries that are too old, and the oldest while there are too many bytes.
function reuse.trim_cache(cache)
  local bytes, seconds, left = KEPT_BYTES, KEPT_S, MOST_EVICTED
  if cache then bytes, seconds = cache[1], cache[2] end
  local over = math.max(now_ms() - 1000 * seconds, tonumber(call('GET', keys.CACHE_SINCE) or 0))
  for _, entry in ipairs(call('ZRANGEBYSCORE', keys.CACHED, '-inf', over, 'LIMIT', 0, left)) do
    drop_entry(entry)
    left = left - 1
  end
  while left > 0 and tonumber(call('GET', keys.CACHE_BYTES) or 0) > bytes do
    local oldest = call('ZRANGE', keys.CACHED, 0, 0)[1]
    if not oldest then return call('DEL', keys.CACHE_BYTES) end
    drop_entry(oldest)
    left = left - 1
  end
end

-- Store the result of an item, as JSON, from `,"status":` on.
local function keep_result(owner, digest, text, cache)
  if entry_bytes(text) > (cache and cache[1] or KEPT_BYTES) then return end
  if call('HSETNX', keys.cache(owner), digest, text) == 0 then return end
  call('ZADD', keys.CACHED, now_ms(), digest .. ' ' .. owner)
  local bytes = call('INCRBY', keys.CACHE_BYTES, entry_bytes(text))
  if bytes > (cache and cache[1] or KEPT_BYTES) then reuse.trim_cache(cache) end
end

-- The stored result of an item, or nil.
local function kept_result(owner, digest, cache)
  local text = call('HGET', keys.cache(owner), digest)
  if not text then return nil end
  local entry = digest .. ' ' .. owner
  local kept = tonumber(call('ZSCORE', keys.CACHED, entry) or nil)
  local since = tonumber(call('GET', keys.CACHE_SINCE) or 0)
  if kept and kept > since and now_ms() - kept < 1000 * (cache and cache[2] or KEPT_S) then return text end
  drop_entry(entry)
end

-- Give an item the result of an equal item.
local function take_over(ref, text, ttl, outcome)
  local key, id = keys.job(ref.job), 'null'
  local ids = call('HGET', key, 'item_ids')
  if ids then id = cjson.encode(cjson.decode(ids)[ref.first + 1]) end
  local blob = '[{"index":' .. ref.first .. ',"id":' .. id .. string.sub(text, 1, -2) .. ',"reused":true}]'
  local ok = string.sub(text, 1, 21) == ',"status":"succeeded"' and 1 or 0
  if not job_is_open(ref.job) or call('HEXISTS', keys.results(ref.job), ref.first) == 1 then return end
  call('HINCRBY', key, 'reused', 1)
  count('corelane_reuse_total|', outcome, 1)
  jobs.settle(ref.job, ref.first, blob, ok, 1 - ok, ttl)
end

-- Followers and leaders.

-- Whether the item that an entry of keys.COMPUTING names is claimed. An entry is JOB:FIRST LEASE PRIORITY, then ` +` if
-- others follow it. `lease` is that of a claim that is being made.
local function is_computed(entry, lease)
  local stretch, its_lease = string.match(entry, '^(%S+) (%S+) [012]')
  if not stretch then return false end
  return its_lease == lease or call('HEXISTS', keys.claim(its_lease), stretch) == 1
end

-- Whether an item of a priority may follow the item that an entry names, if there is an entry.
local function may_follow(entry, priority, lease)
  return entry and (string.match(entry, '^%S+ %S+ ([012])') or '9') <= priority and is_computed(entry, lease)
end

local function is_followed(entry) return string.sub(entry, -1) == '+' end

-- Let a ref of one item follow an equal one that is being computed; `leader` is its entry. → whether it does
local function follow(ref, text, digest, leader, lease)
  if not may_follow(leader, ref.priority, lease) then return false end
  if call('LLEN', keys.followers(digest)) >= MOST_FOLLOWERS then return false end
  if not is_followed(leader) then
    call('HSET', keys.COMPUTING, digest, leader .. ' +')
    call('ZADD', keys.FOLLOWED, now_ms(), digest)
  end
  call('RPUSH', keys.followers(digest), text)
  return true
end

-- Spare a core a single item of an open job: take a stored result, or follow an equal item. → whether it is spared
function reuse.spare_item(ref, text, digest, ttl, kept, leader)
  if kept then
    take_over(ref, kept, ttl, 'hit')
    return true
  end
  return follow(ref, text, digest, leader)
end

-- A ref at its first attempt is claimed: note that its items are being computed, except those that equal items already
-- lead. If the claim of the earlier leader is gone, the new leader takes over its followers. Or spare the core a single
-- item. → whether it is spared
-- Stored results are looked up here only if the cache is on: without one they are kept only for a moment, for items
-- that are submitted in that time.
function reuse.claim(ref, text, digests, ttl, cache, lease)
  local name = ref.job .. ':' .. ref.first .. ' ' .. lease .. ' ' .. ref.priority
  if ref.count ~= '1' then
    local own, noted = digests_from(digests, ref.first, ref.count), {}
    for i, leader in ipairs(call('HMGET', keys.COMPUTING, unpack(own))) do
      if not leader or not is_computed(leader, lease) then
        noted[#noted + 1] = own[i]
        noted[#noted + 1] = leader and is_followed(leader) and name .. ' +' or name
      end
    end
    if #noted > 0 then call('HSET', keys.COMPUTING, unpack(noted)) end
    return false
  end
  local digest = reuse.digest_at(digests, ref.first)
  local kept = cache and kept_result(ref.owner, digest, cache)
  if kept then return reuse.spare_item(ref, text, digest, ttl, kept) end
  if call('HSETNX', keys.COMPUTING, digest, name) == 1 then return false end
  local leader = call('HGET', keys.COMPUTING, digest)
  if follow(ref, text, digest, leader, lease) then return true end
  if not is_computed(leader, lease) then
    call('HSET', keys.COMPUTING, digest, is_followed(leader) and name .. ' +' or name)
  end
  return false
end

-- Remove and return the followers of a digest.
local function take_followers(digest)
  local texts = call('LRANGE', keys.followers(digest), 0, -1)
  call('DEL', keys.followers(digest))
  call('ZREM', keys.FOLLOWED, digest)
  return texts
end

-- Put followers back at the front of their lanes. No core is rung for them: the core that held their leader is awake,
-- or the step that takes its work back rings.
local function release_followers(digest)
  local texts = take_followers(digest)
  for i = #texts, 1, -1 do
    local ref = parse(texts[i])
    local status, version = unpack(call('HMGET', keys.job(ref and ref.job or ''), 'status', 'version'))
    if is_open(status) then enqueue(version, { texts[i] }, nil, true) end
  end
end

-- Return those digests of a job's items that it leads, and whether each has followers. The job stops leading them.
local function stop_leading(job, digests, first, count)
  local own, led, followed = digests_from(digests, first, count), {}, {}
  for i, leader in ipairs(call('HMGET', keys.COMPUTING, unpack(own))) do
    if leader and string.sub(leader, 1, #job + 1) == job .. ':' then
      led[#led + 1] = own[i]
      followed[own[i]] = is_followed(leader)
    end
  end
  if #led > 0 then call('HDEL', keys.COMPUTING, unpack(led)) end
  return own, followed
end

-- Release the followers of a job's items: these get no result of their own, or their claim is gone.
function reuse.release_led(job, first, count)
  local digests = call('HGET', keys.job(job), 'digests')
  if not digests then return end
  local _, followed = stop_leading(job, digests, first, count or #digests / DIGEST_CHARS)
  for digest, is in pairs(followed) do
    if is then release_followers(digest) end
  end
end

-- The result of an item in the results of its stretch, from `,"status":` on. The texts searched for cannot occur in a
-- string, where quotes are escaped.
local function result_of(blob, place)
  local begin = string.find(blob, '{"index":' .. place .. ',"id":', 1, true)
  local status = begin and string.find(blob, ',"status":', begin, true)
  if not status then return nil end
  local last = string.find(blob, '},{"index":' .. place + 1 .. ',"id":', status, true)
  return string.sub(blob, status, last or -2)
end

-- A stretch with digests has its results: give them to its followers too, and store them.
function reuse.settle_digests(job, owner, digests, first, count, blob, ttl, cache)
  local own, followed = stop_leading(job, digests, first, count)
  for i, digest in ipairs(own) do
    local text = (followed[digest] or cache) and result_of(blob, first + i - 1)
    if text then
      local succeeded = string.sub(text, 1, 21) == ',"status":"succeeded"'
      if succeeded then keep_result(owner, digest, text, cache) end
      if followed[digest] then
        if succeeded or OWN_ERRORS[string.gsub(string.match(text, OWN_ERROR) or '', '^.*_too_long$', 'too_long')] then
          for _, follower in ipairs(take_followers(digest)) do
            local ref = parse(follower)
            if ref then take_over(ref, text, ttl, 'joined') end
          end
        else
          release_followers(digest)
        end
        followed[digest] = false
      end
    end
  end
end

-- What is known of a single item that is about to be submitted: its stored result, or the entry of its leader.
function reuse.find_known(ref, digest, cache)
  local kept = kept_result(ref.owner, digest, cache)
  if kept then return kept, nil end
  local leader = call('HGET', keys.COMPUTING, digest)
  return nil, may_follow(leader, ref.priority) and leader or nil
end

-- The indexes of items that are answered or being computed already, of a job that is about to be submitted.
local function find_all_known(owner, priority, digests, cache)
  local own, known = digests_from(digests, 0, #digests / DIGEST_CHARS), {}
  local leaders = call('HMGET', keys.COMPUTING, unpack(own))
  local kept = call('HMGET', keys.cache(owner), unpack(own))
  for i, digest in ipairs(own) do
    if may_follow(leaders[i], priority) or (kept[i] and kept_result(owner, digest, cache)) then known[#known + 1] = i - 1 end
  end
  return known
end

on('refuse', function(job, ask)
  if not ask.digests or ask.is_cut then return nil end
  local known = find_all_known(job.fields.owner, job.priority, ask.digests, ask.cache)
  if #known > 0 then return { -2, known } end
end)

on('give_back', function(_, ref) reuse.release_led(ref.job, ref.first, tonumber(ref.count)) end)

-- Release followers whose leaders were answered or taken back by an earlier version, which does not know followers.
function reuse.tend_followers()
  local now = now_ms()
  for _, digest in ipairs(call('ZRANGEBYSCORE', keys.FOLLOWED, '-inf', now - FOLLOWED_CHECK_MS, 'LIMIT', 0, 100)) do
    local leader = call('HGET', keys.COMPUTING, digest)
    if leader and is_computed(leader) then
      call('ZADD', keys.FOLLOWED, now, digest)
    else
      call('HDEL', keys.COMPUTING, digest)
      release_followers(digest)
    end
  end
end

-- clear_cache{owner, most} → entries removed; if fewer than `most`, no results of the owner are left
define('clear_cache', function(ask)
  local cleared = 0
  for _, digest in ipairs(call('HRANDFIELD', keys.cache(ask.owner), ask.most)) do
    drop_entry(digest .. ' ' .. ask.owner)
    cleared = cleared + 1
  end
  return cleared
end, 'allow-oom')
