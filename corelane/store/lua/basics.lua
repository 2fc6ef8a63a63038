-- What all functions share: how one is defined, the time, refs, and accounts of tokens.
-- A library is loaded once and keeps its locals between calls: nothing may be kept in them but the three below. `tally` has
-- the counts of this call, which `write_counts` writes at its end.
local call, clock, tally
local write_counts

-- Define a function that Redis runs atomically: `run(ask, args)`, where `ask` is the call's first argument, a JSON object,
-- and `args` are all arguments. Flags: `no-writes`; `allow-oom` for what ends or frees something, even where Redis is full.
local function define(name, run, ...)
  redis.register_function({
    function_name = PREFIX .. name,
    flags = { ... },
    callback = function(_, args)
      call, clock, tally = redis.call, nil, nil
      local reply = run(cjson.decode(args[1]), args)
      if tally then write_counts() end
      return reply
    end,
  })
end

-- The time at which this call began, in microseconds: a text of it needs `%.0f`.
local function now_us()
  if not clock then
    local time = call('TIME')
    clock = time[1] * 1000000 + time[2]
  end
  return clock
end

local function now_ms() return math.floor(now_us() / 1000) end

-- job:owner:priority:payload:first:count:tokens:attempt; nil for a text that no process of Corelane writes.
local MOST_DIGITS, MOST_REF_ITEMS = 12, 1000
local function parse(ref)
  local job, owner, priority, payload, first, count, tokens, attempt =
    string.match(ref, '^([^:]+):([^:]+):([012]):(%d+):(%d+):(%d+):(%d+):(%d+)$')
  if not job or math.max(#payload, #first, #count, #tokens, #attempt) > MOST_DIGITS then return nil end
  if tonumber(count) > MOST_REF_ITEMS or tonumber(first) < tonumber(payload) then return nil end
  return {
    job = job, owner = owner, priority = priority, payload = payload, first = first, count = count,
    tokens = tonumber(tokens), attempt = tonumber(attempt),
  }
end

-- Remove a text that is no ref from a list of refs: kept, it would stop every claim.
local function drop_forged(list, text)
  call('LREM', list, 1, text)
  redis.log(redis.LOG_WARNING, 'Corelane: dropped a text from ' .. list .. ' that is no ref: ' .. string.sub(text, 1, 100))
end

local function is_open(status) return status == 'queued' or status == 'running' end

local function job_is_open(job) return is_open(call('HGET', keys.job(job), 'status')) end

local function add(key, field, amount)
  if call('HINCRBY', key, field, amount) == 0 then call('HDEL', key, field) end
end

-- Add tokens to a version's waiting ones (keys.WAITING) or to those a core holds (keys.HELD), and to the owner's account.
local function charge(where, place, ref, amount)
  add(where, place, amount)
  add(keys.OWED, ref.owner .. ':' .. ref.priority, amount)
end

-- Cores that surely hold a version now.
local function holders_of(version) return call('ZRANGEBYSCORE', keys.holders(version), now_ms(), '+inf') end

local function is_held(version) return call('ZCOUNT', keys.holders(version), now_ms(), '+inf') > 0 end
