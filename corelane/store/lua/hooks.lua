-- Hooks: the steps of a job's life at which areas do their part, those of plugins too. An area registers its functions while
-- the library is loaded (`on`), and they run in that order: the order of the areas in `store.link.library`, then that of the
-- plugins.
--
--   submit(job, ask)            it is taken in: `job.fields` are written to its hash after this
--   settle(job, slice)          a slice of it has its results: {first, succeeded, failed, blob, is_first_failure, commit}
--   finish(job, changes)        it ends; `changes` are written to its hash after this; `job.commit` is the call of the core
--                               that ended it, if one did
--   finished(job)               it has ended, and is kept for `job.ttl` seconds
--   forget(job)                 it is deleted
--   spend(ask, answered, late)  a core reports what it spent (`ask.spent`); `late` jobs were over before
--   prune(now, ask)             upkeep, once in a while
--   overdue(add, since)         work may wait though it could go on: `add(name, ms)` says how long; see upkeep.lua
--
-- `job` has its id, the key of its hash (`key`), and the fields of the hash that a function said it reads, as texts or nil.
-- While a library is loaded Redis gives it no function of Lua's own, not even `ipairs`.
local hooks, registered, readers = {}, {}, {}
local STEPS = { 'submit', 'settle', 'finish', 'finished', 'forget', 'spend', 'prune', 'overdue' }

for place = 1, #STEPS do
  local step, all = STEPS[place], {}
  registered[step], readers[step] = all, {}
  hooks[step] = function(...)
    for i = 1, #all do all[i](...) end
  end
end

-- `finished` gets the fields that `finish` reads. At the first claim no area does anything, but a job is read.
readers.finished, readers.claim = readers.finish, {}

-- Declare which fields of its hash the job of a step must have.
local function reads(step, fields)
  local names = readers[step]
  for i = 1, #fields do
    local is_known = false
    for known = 1, #names do is_known = is_known or names[known] == fields[i] end
    if not is_known then names[#names + 1] = fields[i] end
  end
end

-- Let a step run a function; `fields` are those of the job's hash that it reads.
local function on(step, run, fields)
  local all = registered[step]
  all[#all + 1] = run
  reads(step, fields or {})
end

-- Return a job with all fields of its hash that the functions of a step need, in one read.
local function read_job(step, id)
  local names, job = readers[step], { id = id, key = keys.job(id) }
  for i, value in ipairs(call('HMGET', job.key, unpack(names))) do job[names[i]] = value or nil end
  return job
end

-- Write fields of a hash: first the names and values in `...`, then the table `fields`. The first are found fastest, as
-- a small hash is read from its beginning.
local function write_fields(key, fields, ...)
  local flat = { ... }
  local n = #flat
  for name, value in pairs(fields) do
    flat[n + 1], flat[n + 2] = name, value
    n = n + 2
  end
  call('HSET', key, unpack(flat))
end
