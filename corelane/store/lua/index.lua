-- The index: terms by which an owner's jobs are found. `s:open` until the job is final, then `s:failed`, `s:canceled` or
-- `s:expired`; `f` from the first item that failed. Jobs whose items all succeeded have no terms. `TERM JOB` sorts by
-- term and then by time.
local OPEN, ITEMS_FAILED = 's:open', 'f'
local ENDS_OF_NOTE = { failed = 's:failed', canceled = 's:canceled', expired = 's:expired' }

-- Index a job by terms until it is forgotten. Terms that it already has are ignored.
local function add_terms(owner, job, terms)
  local added = {}
  for _, term in ipairs(terms) do
    if call('ZADD', keys.terms(owner), 0, term .. ' ' .. job) == 1 then added[#added + 1] = term end
  end
  if #added == 0 then return end
  local known = call('HGET', keys.job_terms(owner), job)
  if known then table.insert(added, 1, known) end
  call('HSET', keys.job_terms(owner), job, table.concat(added, ' '))
end

on('submit', function(job) call('ZADD', keys.terms(job.fields.owner), 0, OPEN .. ' ' .. job.id) end)

local function close(owner, job, status, failed)
  call('ZREM', keys.terms(owner), OPEN .. ' ' .. job)
  if status == 'succeeded' and tonumber(failed) == 0 then return end
  local terms = { ENDS_OF_NOTE[status] }
  if tonumber(failed) > 0 then terms[#terms + 1] = ITEMS_FAILED end
  add_terms(owner, job, terms)
end

on('finished', function(job) close(job.owner, job.id, job.status, job.failed) end, { 'owner', 'failed' })

-- Note how many items of a stretch failed, so that they are found without reading all results of the job. Also count
-- the job's failed items by error code.
on('settle', function(job, stretch)
  if stretch.failed == 0 then return end
  call('HSET', keys.failures(job.id), stretch.first, stretch.failed)
  for _, result in ipairs(cjson.decode(stretch.blob)) do
    local error = result.status == 'failed' and result.error
    local code = error and error ~= cjson.null and string.match(error.code, '^[%w_]+$')
    if code then call('HINCRBY', job.key, 'failed:' .. code, 1) end
  end
  if stretch.is_first_failure then add_terms(job.owner, job.id, { ITEMS_FAILED }) end
end, { 'owner' })

-- Remove a job from its owner's list of jobs and from the index.
function index.unlist(owner, job)
  local all, terms = keys.terms(owner), call('HGET', keys.job_terms(owner), job)
  call('ZREM', keys.owner_jobs(owner), job)
  call('ZREM', all, OPEN .. ' ' .. job)
  if not terms then return end
  for term in string.gmatch(terms, '%S+') do call('ZREM', all, term .. ' ' .. job) end
  call('HDEL', keys.job_terms(owner), job)
end

on('forget', function(job) index.unlist(job.owner, job.id) end, { 'owner' })

-- An owner's open jobs: their number, and the first of them, oldest first.
function index.open_jobs(owner, most)
  local from, to, found = '[' .. OPEN .. ' ', '(' .. OPEN .. '!', {}
  for i, entry in ipairs(call('ZRANGEBYLEX', keys.terms(owner), from, to, 'LIMIT', 0, most)) do
    found[i] = string.sub(entry, #OPEN + 2)
  end
  return call('ZLEXCOUNT', keys.terms(owner), from, to), found
end
