"""Checks of `corelane doctor` beyond this machine: Redis, its replicas and Sentinels, and the storage of files."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from corelane.cli.redis_server import find_server
from corelane.errors import SetupError, StorageFailed, StoreUnavailable, Unavailable
from corelane.errors.extras import install_command
from corelane.settings import Settings
from corelane.settings.address import RedisAddress, read_address
from corelane.settings.rules import without_password

if TYPE_CHECKING:
    from corelane.store.redis_info import Replication

#: Longest wait for a service on this machine, in seconds; it normally replies in milliseconds.
PROBE_TIMEOUT_S = 3


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """The result of one check, and what to do about it."""

    name: str
    state: Literal["ok", "warn", "fail"]
    found: str
    advice: str = ""


def check_redis(settings: Settings) -> DoctorCheck:
    """Find a Redis that replies, or one that ``corelane serve`` can start."""
    try:
        from corelane.store.link.blocking import Link
    except ImportError as error:
        return DoctorCheck("Redis", "fail", str(error), f"run `{install_command('api')}`")
    where = without_password(settings.redis_url)
    try:
        with closing(Link(settings.redis_url, PROBE_TIMEOUT_S)) as link:
            info = link("INFO")
    except StoreUnavailable as error:
        return judge_no_redis(where, error, is_given="redis_url" in settings.model_fields_set)
    return judge_redis(where, read_info(info))


def read_info(info: bytes | str) -> dict[str, str]:
    """Return the reply to INFO as a mapping."""
    text = info.decode() if isinstance(info, bytes) else info
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


def judge_redis(where: str, info: dict[str, str]) -> DoctorCheck:
    """Warn if a Redis that replies may lose accepted jobs."""
    name = info.get("server_name", "redis")
    found = f"{name} {info.get(f'{name}_version', info.get('redis_version', ''))} replies at {where}"
    if info.get("maxmemory_policy", "noeviction") != "noeviction":
        advice = "it drops jobs when it is full: `CONFIG SET maxmemory-policy noeviction`"
        return DoctorCheck("Redis", "warn", f"{found}, policy {info['maxmemory_policy']}", advice)
    if info.get("aof_enabled") == "0":
        advice = "a restart of it loses accepted jobs: `CONFIG SET appendonly yes`"
        return DoctorCheck("Redis", "warn", f"{found}, without an append-only file", advice)
    return DoctorCheck("Redis", "ok", found)


def judge_no_redis(where: str, error: StoreUnavailable, *, is_given: bool) -> DoctorCheck:
    """Fail if a Redis that was named does not reply, or if there is none to start."""
    if is_given:
        advice = "start it, or unset CORELANE_REDIS_URL: `corelane serve` then starts one of its own"
        return DoctorCheck("Redis", "fail", f"none to use at {where}: {error.detail}", advice)
    if "Authentication" in error.detail:
        advice = "name the folder of the service that runs here by --data, or give the URL as CORELANE_REDIS_URL"
        return DoctorCheck(
            "Redis", "warn", f"the one at {where} asks for a password that this folder does not have", advice
        )
    try:
        return DoctorCheck("Redis", "ok", f"none at {where}; `corelane serve` starts {find_server()}")
    except SetupError as missing:
        return DoctorCheck("Redis", "fail", f"none at {where}, none to start", str(missing))


def check_replicas(settings: Settings) -> DoctorCheck:
    """Look at the replicas of Redis, and ask each Sentinel for its view of the primary."""
    try:
        from corelane.store.link.blocking import Link
        from corelane.store.link.connections import read_sentinels
        from corelane.store.redis_info import Replication

        address, sentinels = read_address(settings.redis_url), read_sentinels(settings.redis_url)
        views = sentinels.views() if sentinels else []
        with closing(Link(settings.redis_url, PROBE_TIMEOUT_S)) as link:
            found = Replication.parse(read_info(link("INFO")))
    except (ImportError, Unavailable, ValueError):
        return DoctorCheck("replicas", "ok", "no Redis to ask")
    if views and (trouble := judge_sentinels(views)):
        return trouble
    return judge_replicas(found, settings.replicas_ack, address)


def judge_sentinels(views: Sequence[tuple[str, Mapping[str, str]]]) -> DoctorCheck | None:
    """Warn of Sentinels that do not reply, disagree, or consider the primary down."""
    silent = [f"{place}: {view['error']}" for place, view in views if "error" in view]
    named = sorted({f"{view['ip']}:{view['port']}" for _, view in views if "error" not in view})
    down = [place for place, view in views if "down" in view.get("flags", "")]
    if silent:
        found = "\n".join([f"{len(silent)} of {len(views)} Sentinels do not reply", *silent])
        advice = "without a majority of them no replica is promoted"
    elif len(named) > 1:
        found = f"the Sentinels name {' and '.join(named)} as the primary"
        advice = "a failover is under way if they agree soon"
    elif down:
        found = f"the primary is down in the eyes of {', '.join(down)}"
        advice = "they promote a replica once a majority of them thinks so"
    else:
        return None
    return DoctorCheck("replicas", "warn", found, advice)


def judge_replicas(found: "Replication", wanted: int, address: RedisAddress) -> DoctorCheck:
    """Fail if no job can be accepted; warn if a failover may lose more than is unavoidable."""
    how = ", by TLS" if address.is_tls else ""
    how = f", found by {len(address.sentinels)} Sentinels{how}" if address.sentinels else how
    if found.role != "primary":
        return DoctorCheck(
            "replicas", "fail", f"this Redis is a replica{how}", "name its primary, or the Sentinels, instead"
        )
    says = f"the primary has {found.replicas} in step, {found.lag_bytes:,} bytes behind at most{how}"
    if found.replicas < wanted:
        advice = f"CORELANE_REPLICAS_ACK={wanted}: jobs are refused with 503 until {wanted} replicas follow"
        return DoctorCheck("replicas", "fail", says, advice)
    if not found.replicas:
        return DoctorCheck("replicas", "ok", f"none{how}")
    if not found.is_guarded:
        advice = "a primary that is cut off takes jobs that will be lost: `CONFIG SET min-replicas-to-write 1`"
        return DoctorCheck("replicas", "warn", says, advice)
    return DoctorCheck("replicas", "ok", says)


def check_storage(settings: Settings) -> DoctorCheck:
    """Check that the storage of files takes, returns and deletes a small file."""
    from corelane.store.file_storage import open_storage

    if settings.files_url is None:
        return DoctorCheck("files", "ok", f"in {settings.files_root}, which API and keeper share")
    try:
        open_storage(settings.files_url, settings.files_root).check()
    except SetupError as error:
        return DoctorCheck("files", "fail", error.detail)
    except StorageFailed as error:
        advice = "CORELANE_FILES_URL, AWS_ENDPOINT_URL_S3 and the credentials must lead to a bucket that may be written"
        return DoctorCheck("files", "fail", error.detail, advice)
    return DoctorCheck("files", "ok", f"{without_password(settings.files_url)} takes, returns and deletes files")
