"""Core's Redis keys: pattern, type, meaning, expiry. Python calls these; the Lua library uses the same names.

A plugin has a module ``keys`` of its own; ``all_keys`` returns the keys of plugins too.

``%s`` stands for a name to fill in: ``keys.job(job)`` is ``cl:job:{JOB}``; the comments say what the names are. P is a
priority (0, 1, 2). Times are Redis' own, in milliseconds, so the clocks of hosts do not matter.

A key that ``stays`` exists even when there is no work. Processes that run models may not reach a ``secret`` one: it
decides who may call the API, or signs webhooks. Other keys expire as their comments say, or are deleted with the
last work, core, delivery or owner they belong to; the keeper removes the rest (``prune``). "As the job" means
results_ttl_s after it is final.
"""

from collections.abc import Mapping
from functools import cache
from importlib import import_module

from corelane.plugin import all_plugins


class RedisKey(str):
    """A key, or the pattern of one; ``kind`` is its Redis type."""

    __slots__ = ("kind", "secret", "stays")
    kind: str
    stays: bool
    secret: bool

    def __new__(cls, pattern: str, kind: str, *, stays: bool = False, secret: bool = False) -> "RedisKey":
        """Make a key that carries its type."""
        key = super().__new__(cls, pattern)
        key.kind, key.stays, key.secret = kind, stays, secret
        return key

    def __call__(self, *names: object) -> str:
        """Return the key with these names filled in."""
        return self % names


#: Prefix of all keys and channels.
PREFIX = "cl:"

SCHEMA = RedisKey("cl:schema", "string", stays=True)  # number of the data's format, see corelane.store.schema
CELL = RedisKey("cl:cell", "string", stays=True)  # the service that owns this Redis, as named in its ids

# Jobs. The hash has status, version, counts, times, options, owner, webhook, request id, traceparent, and up
# to which item the job was fed, dropped and reported.
job = RedisKey("cl:job:{%s}", "hash")  # as the job
payloads = RedisKey("cl:in:{%s}", "hash")  # slice's first item → rows, JSON; 60 s, until answered, or as the job
shared_texts = RedisKey("cl:contexts:{%s}", "hash")  # number → shared text; as the job if an item was not answered
TEXT_IDS = "context_ids"  # field of the hash of a job with an input: the ids of these texts, JSON
results = RedisKey("cl:out:{%s}", "hash")  # slice's first item → results, JSON; as the job, or until dropped
dropped = RedisKey("cl:dropped:{%s}", "string")  # bitmap: dropped results that were no success; as the job
job_events = RedisKey("cl:story:{%s}", "stream")  # events between beginning and end, the last 1,000 or so; as the job
owner_jobs = RedisKey("cl:index:%s", "zset")  # owner → jobs by id, which is by time; score 0
listed = RedisKey("cl:listed:%s:%s", "zset")  # state, owner → its jobs of that state; score 0; see lua/index.lua
KEEPING = RedisKey("cl:keeping", "zset")  # OWNER:JOB, with :file if sent as lines → time the final job is kept until
gone = RedisKey("cl:gone:%s", "string")  # owner of a job that is no longer kept; a week
once = RedisKey("cl:once:%s:%s", "string")  # owner, digest of Idempotency-Key → job or batch it made; a day
name = RedisKey("cl:name:%s:%s", "string")  # owner, name → the job of that name, and its fingerprint; as the job
retry = RedisKey("cl:retry:{%s}", "string")  # id of the job's retry; as the retry
open_jobs = RedisKey("cl:open:%s", "set")  # P → jobs that are not final
WINDOWED = RedisKey("cl:windowed", "hash")  # version → open items whose results are dropped as they are read
JOB_COUNTS = RedisKey("cl:jobs", "hash")  # version → its jobs that are not final
EXPIRING = RedisKey("cl:expiring", "zset")  # open job → time it expires
LATER = RedisKey("cl:later", "zset")  # job whose time has not come → its `not_before`
FEEDS = RedisKey("cl:feeds", "zset")  # job sent as lines, not fed to its end → time it was submitted
READING = RedisKey("cl:reading", "zset")  # job whose input is at a URL, not read to its end → time it is tried next
ENDS = RedisKey("cl:events", "stream", stays=True)  # one entry per job that became final; the last 10,000
LAST_END = RedisKey("cl:last_end", "string", stays=True)  # the last entry of ENDS that was logged
done = RedisKey("cl:done:%s", "channel")  # job → its id at its end; API process → lone results too
CONFIRMED = RedisKey("cl:confirmed", "channel")  # a message before replicas are waited for; it has no listeners

# Waiting work. A ref is the text that names a slice, see corelane.domain.dispatch. Tokens are estimates.
lane = RedisKey("cl:lane:%s:%s:%s", "list")  # version, P, owner → refs of small jobs, oldest first
refs = RedisKey("cl:refs:{%s}", "list")  # refs of a larger job, oldest first
line = RedisKey("cl:line:%s:%s:%s", "zset")  # version, P, owner → larger jobs by tokens served; `-`: small ones
returned = RedisKey("cl:returned:%s", "list")  # version → refs that a lost claim held: they go first, alone
owner_lanes = RedisKey("cl:lanes:%s:%s", "set")  # P, owner → versions of the owner's lanes; `+` and version of a line
shares = RedisKey("cl:shares:%s", "zset")  # P → owners with waiting refs, by tokens served ÷ share
KEY_SHARES = RedisKey("cl:owner_shares", "hash", stays=True)  # owner → its keys as KEY:SHARE:UNTIL; see share_of
WAITING = RedisKey("cl:waiting", "hash")  # version → tokens in its lanes
OWED = RedisKey("cl:owed", "hash")  # owner → tokens not yet answered
DEFERRED = RedisKey("cl:deferred", "hash")  # owner → tokens of jobs whose time has not come
UNFED = RedisKey("cl:unfed", "hash")  # owner → tokens that are still in files

# Claims.
claim = RedisKey("cl:claim:%s", "hash")  # lease → what the claim still holds: JOB:FIRST → ref
LEASES = RedisKey("cl:leases", "zset")  # lease (CORE#FENCE) → deadline
FENCE = RedisKey("cl:fence", "string", stays=True)  # the last fence, see next_fence in lua/basics.lua
FENCED_LIFE = RedisKey("cl:fence:life", "string", stays=True)  # replication id of the primary that made the fence
BELLS = RedisKey("cl:seq", "string", stays=True)  # bells rung
bell = RedisKey("cl:bell:%s", "string")  # core → absent: asleep; r: rung or busy, 30 s; l: its drain lingers, 5 s
wake = RedisKey("cl:wake:%s", "list")  # core → wakes its lingering drain; 30 s
HELD = RedisKey("cl:held", "hash")  # core → tokens it has claimed and not answered
CLAIMED = RedisKey("cl:claimed", "hash")  # core → time it last asked for work
rate = RedisKey("cl:rate:%s", "hash")  # second → owner → tokens answered in it; 60 s


# Cores and models.
core = RedisKey("cl:core:%s", "hash")  # the heartbeat: state, pid, versions, busy ratio, work done; lease_s
CORES = RedisKey("cl:cores", "zset")  # core → time of its last heartbeat; 15 min after a loss
OUT_OF_SERVICE = RedisKey("cl:out_of_service", "set")  # cores that are broken and take no versions
SPEEDS = RedisKey("cl:speeds", "hash")  # core → its speed in tokens/s
LAST_SPEED = RedisKey("cl:last_speed", "string", stays=True)  # the speed that a core told last
full_speed = RedisKey("cl:full_speed:%s", "string")  # core → its speed when it had enough to do; 30 d
holders = RedisKey("cl:holders:%s", "zset")  # version → cores, by the time until which they surely hold it
MODELS = RedisKey("cl:models", "hash", stays=True)  # version → its summary, JSON
ALIASES = RedisKey("cl:aliases", "hash", stays=True)  # alias → version, or pairs of version and weight
PINNED = RedisKey("cl:pinned", "set", stays=True)  # aliases set through the API, which no worker moves
NAMED = RedisKey("cl:named", "hash", stays=True)  # alias → version that workers' settings mean by it
PLACEMENTS = RedisKey("cl:placements", "hash", stays=True)  # version → where it is wanted, JSON
CLOSED = RedisKey("cl:closed", "hash", stays=True)  # version that takes no more jobs → since when
PAUSED = RedisKey("cl:paused", "hash", stays=True)  # model:VERSION, owner:NAME → who paused it, when; JSON
PLAN = RedisKey("cl:plan", "string", stays=True)  # counter: changes of placements, which workers then read
loading = RedisKey("cl:loading:%s", "hash")  # core → VERSION#SINCE → loads begun and not ended; 600 s
RESTARTING = RedisKey("cl:restarting", "string")  # the core whose process is being replaced, to free memory; 60 s

# Webhooks. A delivery has url, bytes or the data to make them from, state, attempts. It expires 3 days after its event,
# results_ttl_s after it is done, dead_ttl_s after it was given up.
delivery = RedisKey("cl:delivery:%s", "hash")
attempts = RedisKey("cl:tries:%s", "list")  # delivery → its last fifty attempts, JSON; as the delivery
deliveries = RedisKey("cl:deliveries:%s", "zset")  # job or batch → deliveries by time of event; as the last of them
due = RedisKey("cl:due:%s", "zset")  # host → deliveries by time of the next attempt
flight = RedisKey("cl:flight:%s", "zset")  # host → deliveries in progress, by the time they are due again
DUE_HOSTS = RedisKey("cl:due", "zset")  # host → time at which one of its deliveries may be sent
FAILURES = RedisKey("cl:failures", "hash")  # host → failures in a row, while anything waits for it
CIRCUITS = RedisKey("cl:circuits", "zset")  # host that rests → until when
WAKE_SENDERS = RedisKey("cl:wake:senders", "list")  # wakes a sender of webhooks; 30 s
DEAD = RedisKey("cl:dead", "zset")  # dead letter → time it was given up
# Owner → what signs its webhooks, JSON: see lua/secrets.lua.
SECRETS = RedisKey("cl:secrets", "hash", stays=True, secret=True)
POSTED = RedisKey("cl:posted", "hash", stays=True)  # outcome → attempts and deliveries that ended with it


# Loops.
FEEDER = RedisKey("cl:feeder", "string")  # the process that feeds; 5 s
FENCES = RedisKey("cl:fences", "hash", stays=True)  # key of such a lease → its last holder's fence
ROUNDS = RedisKey("cl:rounds", "hash", stays=True)  # loop → time it last ran
PARTS = RedisKey("cl:parts", "hash")  # a `serve` whose parts do not stay up → what it finds, JSON; an hour
PRUNED = RedisKey("cl:pruned", "string")  # set while it is too early to prune; 30 s

# Metrics and history.
METRICS = RedisKey("cl:metrics", "hash", stays=True)  # metric|label…, of a histogram with |bucket → its sum since ever
PROCESSES = RedisKey("cl:processes", "zset")  # process that measures → time of its last flush; an hour
process = RedisKey("cl:process:%s", "hash")  # its role, host, pid and gauges, and the number of its last flush; an hour
RELEASE = RedisKey("cl:release", "string", stays=True)  # the release of the process that was started last
MARKS = RedisKey("cl:marks", "stream", stays=True)  # what was done to the service: kind, text; the last 1,000

# Callers.
api_key = RedisKey("cl:key:%s", "hash", stays=True, secret=True)  # digest → id, name, owner, scopes, times
API_KEYS = RedisKey("cl:keys", "hash", stays=True, secret=True)  # id → digest
API_KEYS_CHANGED = RedisKey("cl:keys:changed", "string", stays=True, secret=True)  # counter of changes
RATES_PREFIX = "cl:rates"
# Requests in this window and the one before, by the `limits` library.
rates = RedisKey(f"{RATES_PREFIX}:%s", "string", secret=True)


def keys_in(names: Mapping[str, object]) -> dict[str, RedisKey]:
    """Return the keys among the names of a module."""
    return {name: key for name, key in names.items() if isinstance(key, RedisKey)}


@cache
def all_keys() -> dict[str, RedisKey]:
    """Return all keys by name, those of the installed plugins too; raise ValueError if two have one name."""
    found = keys_in(globals())
    for plugin in all_plugins():
        own = keys_in(vars(import_module(plugin.keys))) if plugin.keys else {}
        if twice := sorted(found.keys() & own.keys()):
            raise ValueError(f"the plugin {plugin.name} has keys of names that there are already: {twice}")
        found |= own
    return found


def as_lua() -> str:
    """Return the keys as a Lua table: fixed ones as texts, patterns as functions of the same names."""
    return "{\n" + "".join(f"  {name} = {_lua_value(key)},\n" for name, key in all_keys().items()) + "}"


def _lua_value(key: RedisKey) -> str:
    """Write ``cl:lane:%s:%s`` as ``function(a, b) return 'cl:lane:' .. a .. ':' .. b end``."""
    names = ["a", "b", "c"][: key.count("%s")]
    text = (f"'{key}'" % tuple(f"' .. {name} .. '" for name in names)).removesuffix(" .. ''")
    return f"function({', '.join(names)}) return {text} end" if names else text
