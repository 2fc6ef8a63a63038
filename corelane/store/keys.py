"""Every Redis key: its pattern, type, meaning and expiry. Python calls these, and the Lua library gets the same names.

``%s`` stands for a name to fill in: ``keys.job(job)`` is ``cl:job:{JOB}``. P is a priority (0, 1, 2). Times are Redis'
own clock in milliseconds, so the clocks of hosts do not matter.

A key that ``stays`` is there when there is nothing to do: counters, models and the decisions about them, API keys, the
last events. All others expire as their comments say, or go with the last work, core, delivery or owner they belong to;
the keeper removes what nothing else does (``prune``).
"""


class RedisKey(str):
    """A key, or the pattern of one; ``kind`` is its Redis type."""

    __slots__ = ("kind", "stays")

    kind: str
    stays: bool

    def __new__(cls, pattern: str, kind: str, *, stays: bool = False) -> "RedisKey":
        """Note the type beside the text."""
        key = super().__new__(cls, pattern)
        key.kind, key.stays = kind, stays
        return key

    def __call__(self, *names: object) -> str:
        """Return the key of these names."""
        return self % names


# The data: number of the format that all processes agree on, see corelane.store.schema.
SCHEMA = RedisKey("cl:schema", "string", stays=True)

# Jobs.
# Status, version, counts, times, options, owner, promise, webhook, request id, traceparent; how far it was fed, dropped
# and reported. Expires results_ttl_s after it is final, as do all keys of the job that say "as the job".
job = RedisKey("cl:job:{%s}", "hash")
# Index of a slice's first item → its rows, one JSON text. 60 s until submitted; removed once answered, or as the job if
# an item failed.
payloads = RedisKey("cl:in:{%s}", "hash")
# Number → a passage that items of the job share. As the job if an item was not answered.
contexts = RedisKey("cl:contexts:{%s}", "hash")
# Index of the first item → results, one JSON text. As the job, or until dropped.
results = RedisKey("cl:out:{%s}", "hash")
# Indexes of dropped results that were no success. As the job.
dropped = RedisKey("cl:dropped:{%s}", "string")
# The job's events, once there are others than beginning and end: the last 1,000 or so. As the job.
job_events = RedisKey("cl:story:{%s}", "stream")
# Owner → their jobs by id, which is by time; score 0.
owner_jobs = RedisKey("cl:index:%s", "zset")
# OWNER:JOB, with :file if it was sent as lines → time until which the final job is kept.
KEEPING = RedisKey("cl:keeping", "zset")
# Job → the owner of a job that is no longer kept. Expires after gone_ttl_s.
gone = RedisKey("cl:gone:%s", "string")
# Owner, digest of an Idempotency-Key → what it made, and the fingerprint of the request. idempotency_ttl_s.
once = RedisKey("cl:once:%s:%s", "string")
# Owner, name → the job of that name, and the fingerprint of its request. As the job.
name = RedisKey("cl:name:%s:%s", "string")
# Job → the job that retries it. As the retrying job.
retry = RedisKey("cl:retry:{%s}", "string")
# P → jobs that are not final.
open_jobs = RedisKey("cl:open:%s", "set")
# Version → its jobs that are not final.
JOB_COUNTS = RedisKey("cl:jobs", "hash")
# Open job → time it expires.
EXPIRING = RedisKey("cl:expiring", "zset")
# Job sent as lines that is not fed to its end → time it was submitted.
FEEDS = RedisKey("cl:feeds", "zset")
# One entry per job that became final; the last 10,000.
ENDS = RedisKey("cl:events", "stream", stays=True)
# The last of them that was logged and counted.
LAST_END = RedisKey("cl:told", "string", stays=True)
# Status → jobs that became final with it.
END_COUNTS = RedisKey("cl:ended", "hash", stays=True)
# The id of each job that became final.
DONE = RedisKey("cl:done", "channel")

# Waiting work. A ref is the text that stands for a slice: see corelane.domain.dispatch.
# Version, P, owner → refs of small jobs, oldest first.
lane = RedisKey("cl:lane:%s:%s:%s", "list")
# Job → refs of a larger job, oldest first.
refs = RedisKey("cl:refs:{%s}", "list")
# Version, P, owner → larger jobs that wait, by the tokens they were served; `-` is an eighth of those of small jobs.
line = RedisKey("cl:line:%s:%s:%s", "zset")
# Version → refs that a lost claim held: they go first, alone.
returned = RedisKey("cl:returned:%s", "list")
# P, owner → versions for which the owner has a lane; `+` and the version for a line.
owner_lanes = RedisKey("cl:lanes:%s:%s", "set")
# P → owners with waiting refs, by the tokens they were served.
shares = RedisKey("cl:shares:%s", "zset")
# Version → estimated tokens in its lanes.
WAITING = RedisKey("cl:waiting", "hash")
# OWNER:P → estimated tokens not yet answered; of jobs sent as lines those that still stand in files.
OWED = RedisKey("cl:owed", "hash")
UNFED = RedisKey("cl:unfed", "hash")

# Claims.
# Lease → what the claim still holds: JOB:FIRST → ref.
claim = RedisKey("cl:claim:%s", "hash")
# Lease (CORE#FENCE) → deadline.
LEASES = RedisKey("cl:leases", "zset")
# Claims made, bells rung.
FENCE = RedisKey("cl:fence", "string", stays=True)
BELLS = RedisKey("cl:seq", "string", stays=True)
# Core → absent (asleep), r (rung or busy: 30 s), l (its drain lingers: 5 s).
bell = RedisKey("cl:bell:%s", "string")
# Core → wakes a lingering drain. Expires after 30 s.
wake = RedisKey("cl:wake:%s", "list")
# Core → estimated tokens it has claimed and not answered.
HELD = RedisKey("cl:held", "hash")
# Core → times it asked for work; every eighth begins at low priority. And when it last asked.
TURNS = RedisKey("cl:turns", "hash")
CLAIMED = RedisKey("cl:claimed", "hash")
# Second → owner → estimated tokens answered in it. Expires after 60 s.
rate = RedisKey("cl:rate:%s", "hash")

# Cores and models.
# Core → the heartbeat: state, pid, versions, busy ratio, work done. Expires after lease_s.
core = RedisKey("cl:core:%s", "hash")
# Every core of the last hour → time of its last heartbeat.
CORES = RedisKey("cl:cores", "zset")
# Cores that are broken and take no versions.
OUT_OF_SERVICE = RedisKey("cl:out_of_service", "set")
# Core → its speed in tokens/s: mean, low, high.
SPEEDS = RedisKey("cl:speeds", "hash")
# Version → cores, by the time until which they surely hold it.
holders = RedisKey("cl:holders:%s", "zset")
# Version → what it is, JSON.
MODELS = RedisKey("cl:models", "hash", stays=True)
# Alias → version, or pairs of version and weight.
ALIASES = RedisKey("cl:aliases", "hash", stays=True)
# Aliases set through the API, which no worker moves. And alias → the version that workers' settings mean by it.
PINNED = RedisKey("cl:pinned", "set", stays=True)
NAMED = RedisKey("cl:named", "hash", stays=True)
# Version → where it is wanted, JSON.
PLACEMENTS = RedisKey("cl:placements", "hash", stays=True)
# Version that takes no more jobs → since when.
CLOSED = RedisKey("cl:closed", "hash", stays=True)
# Changes of placements: workers read them when it moves.
PLAN = RedisKey("cl:plan", "string", stays=True)
# Core → VERSION#SINCE → loads begun and not ended: a model that kills its process is not loaded again and again. 600 s.
loading = RedisKey("cl:loading:%s", "hash")
# The core whose process is being replaced, to free memory. Expires after 60 s.
RESTARTING = RedisKey("cl:restarting", "string")
# Host → cores that load a model while they serve, by the time their turn ends. Expires after lease_s.
loads = RedisKey("cl:loads:%s", "zset")
# Version wanted on a number of cores → cores where it did not load, by the time until which that holds. lease_s.
failed = RedisKey("cl:failed:%s", "zset")

# Webhooks.
# One event on its way: url, bytes or their ingredients, state, attempts. Expires after 3 days while pending,
# results_ttl_s once done, dead_ttl_s once dead.
delivery = RedisKey("cl:delivery:%s", "hash")
# Delivery → its last fifty attempts, JSON. As the delivery.
attempts = RedisKey("cl:tries:%s", "list")
# Job or batch → its deliveries by the time of the event. As the first of them.
deliveries = RedisKey("cl:deliveries:%s", "zset")
# Host → its deliveries by the time of the next attempt; those under way by the time they are due again.
due = RedisKey("cl:due:%s", "zset")
flight = RedisKey("cl:flight:%s", "zset")
# Host with deliveries → time at which one may be sent.
DUE_HOSTS = RedisKey("cl:due", "zset")
# Host → failures in a row, while anything waits for it; host that is left alone → until when.
FAILURES = RedisKey("cl:failures", "hash")
CIRCUITS = RedisKey("cl:circuits", "zset")
# Wakes a sender of webhooks. Expires after 30 s.
WAKE_SENDERS = RedisKey("cl:wake:couriers", "list")
# Dead letters → time they were given up.
DEAD = RedisKey("cl:dead", "zset")
# Outcome → attempts and deliveries that ended with it.
POSTED = RedisKey("cl:posted", "hash", stays=True)

# Files and batches.
# Owner, purpose, name, bytes, times; the content is in the storage of files. Expires with the file.
file = RedisKey("cl:file:{%s}", "hash")
# Owner, status, times, input, plan, counts, files, request id, traceparent. Expires files_ttl_s after it is final.
batch = RedisKey("cl:batch:{%s}", "hash")
# Owner → ids of their files, of their batches.
files = RedisKey("cl:files:%s", "zset")
batches = RedisKey("cl:batches:%s", "zset")
# Batch that is not final → time it was created.
BATCHING = RedisKey("cl:batching", "zset")
# File, or final batch → time it is forgotten.
RETIRING = RedisKey("cl:retiring", "zset")
# Set while it is too early to search the storage for stray files. Expires after a day.
TIDIED = RedisKey("cl:tidied", "string")

# Loops: who feeds (5 s) and who carries batches on (10 s); key of each such lease → the number of holders it had; when
# each loop last ran; and a mark that prune ran (30 s).
FEEDER = RedisKey("cl:feeder", "string")
BATCHER = RedisKey("cl:batcher", "string")
FENCES = RedisKey("cl:fences", "hash", stays=True)
ROUNDS = RedisKey("cl:rounds", "hash", stays=True)
PRUNED = RedisKey("cl:pruned", "string")

# Callers.
# Digest of an API key → id, name, owner, scopes, times. And id → digest; and a counter of changes, which the API reads.
api_key = RedisKey("cl:key:%s", "hash", stays=True)
API_KEYS = RedisKey("cl:keys", "hash", stays=True)
API_KEYS_CHANGED = RedisKey("cl:keys:changed", "string", stays=True)
# Where keys are not checked: owner that may keep something → time it was admitted; gone an hour after its last data.
OWNERS = RedisKey("cl:owners", "zset")
# Requests of an owner or address in this window and the one before, as the `limits` library keeps them.
RATES_PREFIX = "cl:rates"
rates = RedisKey(f"{RATES_PREFIX}:%s", "string")

#: All of them by name.
ALL: dict[str, RedisKey] = {name: key for name, key in globals().copy().items() if isinstance(key, RedisKey)}


def as_lua() -> str:
    """Return the keys as a Lua table: fixed ones as texts, patterns as functions of the same names."""
    return "{\n" + "".join(f"  {name} = {_lua_value(key)},\n" for name, key in ALL.items()) + "}"


def _lua_value(key: RedisKey) -> str:
    """Write ``cl:lane:%s:%s`` as ``function(a, b) return 'cl:lane:' .. a .. ':' .. b end``."""
    names = ["a", "b", "c"][: key.count("%s")]
    text = (f"'{key}'" % tuple(f"' .. {name} .. '" for name in names)).removesuffix(" .. ''")
    return f"function({', '.join(names)}) return {text} end" if names else text
