-- The index: sorted sets by which an owner's jobs are found. `open`, `failed`, `canceled` and `expired` have the jobs in
-- these states, `failing` those of which items failed, whatever their state. A job whose items all succeeded is in none.
local SETS = { 'open', 'failed', 'canceled', 'expired', 'failing' }

local function list(set, owner, job) call('ZADD', keys.listed(set, owner), 0, job) end

on('submit', function(job) list('open', job.fields.owner, job.id) end)

on('finished', function(job)
  call('ZREM', keys.listed('open', job.owner), job.id)
  if job.status ~= 'succeeded' then list(job.status, job.owner, job.id) end
  if tonumber(job.failed) > 0 then list('failing', job.owner, job.id) end
end, { 'owner', 'failed' })

-- Count the job's failed items by error code. Behind the results there may be numbers of vectors.
on('settle', function(job, slice)
  if slice.failed == 0 then return end
  for _, result in ipairs(cjson.decode(slice.blob:match('^\n?[^\n]*'))) do
    local error = result.status == 'failed' and result.error
    local code = error and error ~= cjson.null and string.match(error.code, '^[%w_]+$')
    if code then call('HINCRBY', job.key, 'failed:' .. code, 1) end
  end
  if slice.is_first_failure then list('failing', job.owner, job.id) end
end, { 'owner' })

-- Remove a job from its owner's list of jobs and from the index.
function index.unlist(owner, job)
  call('ZREM', keys.owner_jobs(owner), job)
  for _, set in ipairs(SETS) do call('ZREM', keys.listed(set, owner), job) end
end

on('forget', function(job) index.unlist(job.owner, job.id) end, { 'owner' })
