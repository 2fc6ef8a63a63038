"""What `corelane doctor` says of Redis: whether it answers and keeps what it takes, its replicas and its Sentinels."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from corelane.cli.checks import Check
from corelane.cli.redis_server import find_server
from corelane.errors import SetupError, StoreUnavailable, Unavailable
from corelane.errors.extras import install_command
from corelane.settings import Settings
from corelane.settings.address import RedisAddress, read_address
from corelane.settings.rules import without_password

if TYPE_CHECKING:
    from corelane.store.replication import Replication

#: Longest wait for a service on this machine, which answers in milliseconds, in seconds.
PROBE_TIMEOUT_S = 3


def check_redis(settings: Settings) -> Check:
    """Find a Redis that answers, or one that ``corelane serve`` can start."""
    try:
        from corelane.store.link.blocking import Link
    except ImportError as error:
        return Check("Redis", "fail", str(error), f"run `{install_command('api')}`")
    where = without_password(settings.redis_url)
    try:
        link = Link(settings.redis_url, PROBE_TIMEOUT_S)
        info = link("INFO")
        link.close()
    except StoreUnavailable as error:
        return judge_no_redis(where, error, is_given="redis_url" in settings.model_fields_set)
    return judge_redis(where, read_info(info))


def read_info(info: bytes | str) -> dict[str, str]:
    """Return the reply to INFO as a mapping."""
    text = info.decode() if isinstance(info, bytes) else info
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


def judge_redis(where: str, info: dict[str, str]) -> Check:
    """Warn if a Redis that answers may lose accepted jobs."""
    name = info.get("server_name", "redis")
    found = f"{name} {info.get(f'{name}_version', info.get('redis_version', ''))} answers at {where}"
    if info.get("maxmemory_policy", "noeviction") != "noeviction":
        advice = "it drops jobs when it is full: `CONFIG SET maxmemory-policy noeviction`"
        return Check("Redis", "warn", f"{found}, policy {info['maxmemory_policy']}", advice)
    if info.get("aof_enabled") == "0":
        advice = "a restart of it loses accepted jobs: `CONFIG SET appendonly yes`"
        return Check("Redis", "warn", f"{found}, without an append-only file", advice)
    return Check("Redis", "ok", found)


def judge_no_redis(where: str, error: StoreUnavailable, *, is_given: bool) -> Check:
    """Fail if a Redis that was named does not answer, or if there is none to start."""
    if is_given:
        advice = "start it, or unset CORELANE_REDIS_URL: `corelane serve` then starts one of its own"
        return Check("Redis", "fail", f"none to use at {where}: {error.detail}", advice)
    if "Authentication" in error.detail:
        advice = "name the folder of the service that runs here by --data, or give the URL as CORELANE_REDIS_URL"
        return Check("Redis", "warn", f"the one at {where} asks for a password that this folder does not have", advice)
    try:
        return Check("Redis", "ok", f"none at {where}; `corelane serve` starts {find_server()}")
    except SetupError as missing:
        return Check("Redis", "fail", f"none at {where}, none to start", str(missing))


def check_replicas(settings: Settings) -> Check:
    """Look at the replicas of Redis, and ask each Sentinel what it thinks of the primary."""
    try:
        from corelane.store.link.blocking import Link
        from corelane.store.link.connections import read_sentinels
        from corelane.store.replication import parse_replication

        address, sentinels = read_address(settings.redis_url), read_sentinels(settings.redis_url)
        views = sentinels.views() if sentinels else []
        link = Link(settings.redis_url, PROBE_TIMEOUT_S)
        found = parse_replication(read_info(link("INFO")))
        link.close()
    except (ImportError, Unavailable, ValueError):
        return Check("replicas", "ok", "no Redis to ask")
    if views and (trouble := judge_sentinels(views)):
        return trouble
    return judge_replicas(found, settings.replicas_ack, address)


def judge_sentinels(views: Sequence[tuple[str, Mapping[str, str]]]) -> Check | None:
    """Warn of Sentinels that do not answer, do not agree, or think that the primary is down."""
    silent = [f"{place}: {view['error']}" for place, view in views if "error" in view]
    named = sorted({f"{view['ip']}:{view['port']}" for _, view in views if "error" not in view})
    down = [place for place, view in views if "down" in view.get("flags", "")]
    if silent:
        found = f"{len(silent)} of {len(views)} Sentinels do not answer\n" + "\n".join(silent)
        return Check("replicas", "warn", found, "without a majority of them no replica is promoted")
    if len(named) > 1:
        found = f"the Sentinels name {' and '.join(named)} as the primary"
        return Check("replicas", "warn", found, "a failover is under way if they agree soon")
    if down:
        found = f"the primary is down in the eyes of {', '.join(down)}"
        return Check("replicas", "warn", found, "they promote a replica once a majority of them thinks so")
    return None


def judge_replicas(found: "Replication", wanted: int, address: RedisAddress) -> Check:
    """Fail where no job can be accepted; warn where a failover may lose more than it must."""
    how = ", by TLS" if address.is_tls else ""
    how = f", found by {len(address.sentinels)} Sentinels{how}" if address.sentinels else how
    if found.role != "primary":
        return Check("replicas", "fail", f"this Redis is a replica{how}", "name its primary, or the Sentinels, instead")
    says = f"the primary has {found.replicas} in step, {found.lag_bytes:,} bytes behind at most{how}"
    if found.replicas < wanted:
        advice = f"CORELANE_REPLICAS_ACK={wanted}: jobs are refused with 503 until {wanted} replicas follow"
        return Check("replicas", "fail", says, advice)
    if not found.replicas:
        return Check("replicas", "ok", f"none{how}")
    if not found.is_guarded:
        advice = "a primary that is cut off takes jobs that will be lost: `CONFIG SET min-replicas-to-write 1`"
        return Check("replicas", "warn", says, advice)
    return Check("replicas", "ok", says)
