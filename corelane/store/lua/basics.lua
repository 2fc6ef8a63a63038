-- What all functions share: how one is defined, the time, refs, and accounts of tokens.
-- A library is loaded once and keeps its locals between calls. Only the four below may change. `tally` has the counts
-- of this call, which `write_counts` writes at its end; `fenced_us` is kept on purpose, see `next_fence`.
local call, clock, tally, fenced_us
local write_counts

-- Define a function that Redis runs atomically: `run(ask, args)`, where `ask` is the call's first argument, a JSON
-- object, and `args` are all arguments. The flag is `no-writes`, or `allow-oom`: what was accepted is finished even if
-- Redis is full. Functions that accept something refuse it before that: see `admission.refuse`.
local function define(name, run, flag)
  redis.register_function({
    function_name = PREFIX .. name,
    flags = { flag or 'allow-oom' },
    callback = function(_, args)
      call, clock, tally = redis.call, nil, nil
      local reply = run(cjson.decode(args[1]), args)
      if tally then write_counts() end
      return reply
    end,
  })
end

-- The time at which this call began, in microseconds. To write it as text, use `%.0f`.
local function now_us()
  if not clock then
    local time = call('TIME')
    clock = time[1] * 1000000 + time[2]
  end
  return clock
end

local function now_ms() return math.floor(now_us() / 1000) end

-- Fences: numbers that only grow. They distinguish the steps of the present holder from those of an earlier one.
-- A replica that becomes primary has not seen the last fences, nor has a server that lost the end of its file. So each
-- life of a server as primary, which has its own replication id, begins far above all earlier lives: at the time, in
-- units of 100 us, which no count of fences overtakes. If this server's clock is not ahead of the last fence it saw, it
-- starts from that fence, plus 1000 s and a random part. A server may become primary again after it was replaced, so
-- the id is read again if no fence was made for 100 ms. Numbers stay below 10^14, which Lua writes with all its digits.
local FENCE_US, FENCE_SURE_US, FENCES_UNSEEN, FENCE_JUMP = 100, 100000, 100000, 10000000
local function next_fence()
  local now = now_us()
  if not fenced_us or math.abs(now - fenced_us) > FENCE_SURE_US then
    fenced_us = now
    local life = string.match(call('INFO', 'replication'), 'master_replid:(%x+)')
    if call('GET', keys.FENCED_LIFE) ~= life then
      local last, first = tonumber(call('GET', keys.FENCE) or 0), math.floor(now / FENCE_US)
      if first < last + FENCES_UNSEEN then first = last + FENCE_JUMP + tonumber(string.sub(life, 1, 6), 16) end
      call('SET', keys.FENCE, string.format('%.0f', first))
      call('SET', keys.FENCED_LIFE, life)
    end
  end
  return call('INCR', keys.FENCE)
end

-- Parse a ref: job:owner:priority:payload:first:count:tokens:attempt. Return nil for a text that is no ref.
local MOST_DIGITS = 12
local function parse(ref)
  local job, owner, priority, payload, first, count, tokens, attempt =
    string.match(ref, '^([^:]+):([^:]+):([012]):(%d+):(%d+):(%d+):(%d+):(%d+)$')
  if not job or math.max(#payload, #first, #count, #tokens, #attempt) > MOST_DIGITS then return nil end
  if tonumber(count) > MOST_REF_ITEMS or tonumber(first) < tonumber(payload) then return nil end
  return {
    text = ref, job = job, owner = owner, priority = priority, payload = payload, first = first, count = count,
    tokens = tonumber(tokens), attempt = tonumber(attempt),
  }
end

-- Remove a text that is no ref from a list of refs: it would stop every claim.
local function drop_forged(list, text)
  call('LREM', list, 1, text)
  redis.log(redis.LOG_WARNING, 'Corelane: dropped a text from ' .. list .. ' that is no ref: ' .. string.sub(text, 1, 100))
end

local function is_open(status) return status == 'queued' or status == 'running' end

local function job_is_open(job) return is_open(call('HGET', keys.job(job), 'status')) end

local function add(key, field, amount)
  if call('HINCRBY', key, field, amount) == 0 then call('HDEL', key, field) end
end

-- Add tokens to those that wait for a version (keys.WAITING) or that a core holds (keys.HELD), and to the owner's
-- account.
local function charge(where, place, ref, amount)
  add(where, place, amount)
  add(keys.OWED, ref.owner, amount)
end

-- Everything that is paused: `model:VERSION`, `owner:NAME`. Usually that is nothing, and costs one short
-- command.
local function read_paused()
  local paused = {}
  for _, what in ipairs(call('HKEYS', keys.PAUSED)) do paused[what] = true end
  return paused
end

local function is_paused(kind, name) return call('HEXISTS', keys.PAUSED, kind .. ':' .. name) == 1 end

-- Cores that hold a version now and claim for it.
local function holders_of(version) return call('ZRANGEBYSCORE', keys.holders(version), now_ms(), '+inf') end

-- The ones among `cores` that have no claimed work in progress.
local function without_work(cores)
  local idle = {}
  if #cores == 0 then return idle end
  for i, tokens in ipairs(call('HMGET', keys.HELD, unpack(cores))) do
    if not tokens then idle[#idle + 1] = cores[i] end
  end
  return idle
end

local function is_held(version) return call('ZCOUNT', keys.holders(version), now_ms(), '+inf') > 0 end
