-- Stored texts: passages that an owner stores and jobs name. A text's hash stays until its time is over and no job
-- needs it. Every use extends the time. `removed` is set when the text is deleted or its time is over: new jobs cannot
-- name it then, and it stays for jobs that name it already. Those are in `text_jobs`: open jobs, and final ones with
-- items to retry. The keeper looks at a text when its time is over, and drops it if no job needs it.

-- When a text that jobs still need is looked at again; how often a use is noted; jobs looked at in one call. Times
-- in milliseconds.
local LOOK_AGAIN_MS, NOTE_USE_MS, LOOKED_AT_JOBS = 60000, 1000, 100

-- Whether a job still needs its texts: it is open, or some of its items were not answered.
local function needs_texts(job)
  local status, failed = unpack(call('HMGET', keys.job(job), 'status', 'failed'))
  return status and not (status == 'succeeded' and tonumber(failed) == 0)
end

local function listed_as(created, digest) return string.format('%013.0f:%s', tonumber(created), digest) end

-- Remove a text: no new job may name it from now on.
local function remove_text(owner, digest, created)
  call('HSET', keys.stored_text(owner, digest), 'removed', 1)
  call('ZREM', keys.owner_texts(owner), listed_as(created, digest))
end

local function drop_text(owner, digest)
  local bytes = call('HGET', keys.stored_text(owner, digest), 'bytes')
  if bytes then add(keys.TEXT_BYTES, owner, -tonumber(bytes)) end
  call('UNLINK', keys.stored_text(owner, digest), keys.text_jobs(owner, digest))
  call('ZREM', keys.TEXTS_DUE, owner .. ':' .. digest)
end

-- Return the texts that are missing. Only items that a retry asks again may name removed ones.
local function missing_of(owner, digests, is_retry)
  local missing, now = {}, now_ms()
  for _, digest in ipairs(digests) do
    local expires, removed = unpack(call('HMGET', keys.stored_text(owner, digest), 'expires_ms', 'removed'))
    local is_over = removed or (expires and tonumber(expires) <= now)
    if not expires or (is_over and not is_retry) then missing[#missing + 1] = digest end
  end
  return missing
end

-- Make a job keep existing texts of its owner.
local function use(owner, digests, job)
  local now = now_ms()
  for _, digest in ipairs(digests) do
    local key = keys.stored_text(owner, digest)
    call('SADD', keys.text_jobs(owner, digest), job)
    add(key, 'jobs', 1)
    local used, ttl, expires, removed = unpack(call('HMGET', key, 'used_ms', 'ttl_ms', 'expires_ms', 'removed'))
    if not removed and now - tonumber(used or 0) >= NOTE_USE_MS then
      call('HSET', key, 'used_ms', now, 'expires_ms', math.max(tonumber(expires), now + ttl))
    end
  end
end

-- `ask.stored` holds the digests of the stored texts that a job's items name.
on('refuse', function(job, ask)
  local missing = ask.stored and missing_of(job.fields.owner, ask.stored, ask.is_retry) or {}
  if #missing > 0 then return { -3, unpack(missing) } end
end)

on('submit', function(job, ask)
  if ask.stored then use(job.fields.owner, ask.stored, job.id) end
end)

-- Make a job release its texts; `stored` holds their digests, as in the job's hash.
local function leave(job, owner, stored)
  for digest in string.gmatch(stored, '%x+') do
    call('SREM', keys.text_jobs(owner, digest), job)
    if call('HEXISTS', keys.stored_text(owner, digest), 'removed') == 1
      and call('EXISTS', keys.text_jobs(owner, digest)) == 0 then
      drop_text(owner, digest)
    end
  end
end

on('finished', function(job)
  if job.stored and job.is_whole then leave(job.id, job.owner, job.stored) end
end, { 'owner', 'stored' })

on('forget', function(job)
  if job.stored then leave(job.id, job.owner, job.stored) end
end, { 'owner', 'stored' })

-- keep_text{owner, digest, ttl_ms, most, most_bytes, name, fields}, text → 1 if it is new, 0 if it existed already;
--   -1 if the owner has `most` already, -2 if it would have more than `most_bytes`
-- `fields` holds names, each followed by its value. An existing text is kept for at least `ttl_ms` from now on.
define('keep_text', function(ask, args)
  local owner, digest, now, text = ask.owner, ask.digest, now_ms(), args[2]
  local key = keys.stored_text(owner, digest)
  local created, expires, removed = unpack(call('HMGET', key, 'created_ms', 'expires_ms', 'removed'))
  local is_listed = created and not removed and tonumber(expires) > now
  if not is_listed then
    if created and not removed then remove_text(owner, digest, created) end
    if call('ZCARD', keys.owner_texts(owner)) >= ask.most then return -1 end
    local refused = admission.refuse()
    if refused then return refused end
    local bytes = created and 0 or #text
    if tonumber(call('HGET', keys.TEXT_BYTES, owner) or 0) + bytes > ask.most_bytes then return -2 end
    if bytes > 0 then add(keys.TEXT_BYTES, owner, bytes) end
    call('HSET', key, 'text', text, 'bytes', #text, 'created_ms', now, 'used_ms', now, unpack(ask.fields))
    call('HDEL', key, 'removed')
    call('ZADD', keys.owner_texts(owner), 0, listed_as(now, digest))
    expires = 0
  end
  if ask.name then call('HSET', key, 'name', ask.name) end
  expires = math.max(tonumber(expires), now + ask.ttl_ms)
  call('HSET', key, 'ttl_ms', ask.ttl_ms, 'expires_ms', expires)
  call('ZADD', keys.TEXTS_DUE, expires, owner .. ':' .. digest)
  return is_listed and 0 or 1
end)

-- remove_text{owner, digest} → 1 if it is removed now, 0 if there is none
-- The text is dropped at once if no job needs it, or else with the last job that does.
define('remove_text', function(ask)
  local owner, digest, now = ask.owner, ask.digest, now_ms()
  local key = keys.stored_text(owner, digest)
  local created, expires, removed = unpack(call('HMGET', key, 'created_ms', 'expires_ms', 'removed'))
  if not created or removed then return 0 end
  remove_text(owner, digest, created)
  if call('EXISTS', keys.text_jobs(owner, digest)) == 0 then
    drop_text(owner, digest)
  else
    call('ZADD', keys.TEXTS_DUE, now, owner .. ':' .. digest)
  end
  return tonumber(expires) > now and 1 or 0
end)

-- pin_text{job, owner, digest} → 1 if the job keeps the text from now on; 0 if there is none, or the job is final
-- For a job whose input is read after its submission. Harmless if another keeper did this before.
define('pin_text', function(ask)
  local key = keys.job(ask.job)
  local status, stored = unpack(call('HMGET', key, 'status', 'stored'))
  if not is_open(status) then return 0 end
  if call('SISMEMBER', keys.text_jobs(ask.owner, ask.digest), ask.job) == 1 then return 1 end
  if #missing_of(ask.owner, { ask.digest }, false) > 0 then return 0 end
  use(ask.owner, { ask.digest }, ask.job)
  call('HSET', key, 'stored', (stored and stored .. ' ' or '') .. ask.digest)
  return 1
end)

-- Look at texts whose time may be over, `most` at a time, and drop those that no job needs.
on('prune', function(now, ask)
  for _, name in ipairs(call('ZRANGEBYSCORE', keys.TEXTS_DUE, '-inf', now, 'LIMIT', 0, ask.most)) do
    local owner, digest = string.match(name, '^(.*):(%x+)$')
    local key, users = keys.stored_text(owner, digest), keys.text_jobs(owner, digest)
    local created, expires, removed = unpack(call('HMGET', key, 'created_ms', 'expires_ms', 'removed'))
    if created and not removed and tonumber(expires) > now then
      call('ZADD', keys.TEXTS_DUE, expires, name)
    else
      if created and not removed then remove_text(owner, digest, created) end
      local is_needed = false
      for _, job in ipairs(call('SRANDMEMBER', users, LOOKED_AT_JOBS)) do
        if needs_texts(job) then is_needed = true else call('SREM', users, job) end
      end
      if call('EXISTS', users) == 0 then
        drop_text(owner, digest)
      else
        call('ZADD', keys.TEXTS_DUE, is_needed and now + LOOK_AGAIN_MS or now, name)
      end
    end
  end
end)
