"""The scaler: computes how many cores there should be, from the open work and the cores that serve it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from corelane.domain.ids import iso_time
from corelane.domain.scaling import ScalingInfo
from corelane.metrics import definitions as m
from corelane.metrics.exposition import MetricSample
from corelane.plugins.fleet.rules import OpenLoad, asked_cores, core_seconds
from corelane.settings import Settings
from corelane.store import keys
from corelane.store.fleet import Fleet
from corelane.store.gauges import Work, read_work
from corelane.store.link.lease import Lease
from corelane.store.link.link import CommonLink
from corelane.store.rates import RateStore
from corelane.store.scaling import BELIEVED_MS, SERVING, read_hosts, read_scaling

if TYPE_CHECKING:
    from workers.loops.loop import Loop, LoopTools

#: Time between two rounds, in seconds. It must be short: a small job waits for a round if no core runs.
SCALE_S = 2.0

#: The right to compute the desired cores. Another keeper gets it when the holder misses a few rounds.
SCALER = Lease(keys.SCALER, ttl_ms=10_000)

#: States in which a core knows which versions it holds.
SETTLED = frozenset({"idle", "busy"})


class Scaler:
    """Computes the desired cores, if no other keeper does."""

    def __init__(self, link: CommonLink, name: str, settings: Settings) -> None:
        """``name`` is unique to this scaler."""
        self._link, self._name = link, name
        self._min_cores = 1 if settings.min_cores is None else settings.min_cores
        self._backlog_s = settings.scale_backlog_s
        self._window_ms = int(1000 * settings.scale_in_s)

    async def look(self) -> ScalingInfo | None:
        """Compute and store the desired cores; return None if another keeper does. Raises Unavailable without Redis."""
        if not (await self._link.many([SCALER.take(self._name)]))[0]:
            return None
        work, all_cores = await read_work(self._link), await Fleet(self._link).cores()
        cores = [core for core in all_cores if core.get("state") in SERVING]
        load = await self._load(work, cores)
        hosts = await read_hosts(self._link)
        asked = max(asked_cores(load, self._min_cores, self._backlog_s), sum(host.least for host in hosts))
        info = ScalingInfo(
            at=iso_time(await self._link.now_ms()),
            cores=load.cores,
            desired=await self._settle(asked),
            asked=asked,
            running=sum(core["state"] == "busy" for core in cores),
            waiting_tokens=sum(work.outstanding.values()),
            claimed_tokens=sum(work.claimed.values()),
            backlog_core_s=None if load.core_s is None else round(load.core_s, 3),
            backlog_s=None if load.core_s is None else round(load.core_s / max(1, load.cores), 3),
            fixed=len(names_of(cores) - {core for host in hosts for core in (*host.running, *host.stopped)}),
            stopped=sorted(core for host in hosts for core in host.stopped),
        )
        await self._link("SET", keys.SCALING, info.model_dump_json(), "PX", BELIEVED_MS)
        return info

    async def _settle(self, asked: int) -> int:
        """Return the most cores that were needed in the last minutes."""
        now = await self._link.now_ms()
        _, _, lately, _ = await self._link.many(
            [
                ("ZADD", keys.ASKED, now, f"{now}:{asked}"),
                ("ZREMRANGEBYSCORE", keys.ASKED, "-inf", f"({now - self._window_ms}"),
                ("ZRANGE", keys.ASKED, 0, -1),
                ("PEXPIRE", keys.ASKED, self._window_ms + BELIEVED_MS),
            ]
        )
        return max([asked, *(int(each.rpartition(b":")[2]) for each in lately)])

    async def _load(self, work: Work, cores: Sequence[Mapping[str, Any]]) -> OpenLoad:
        names = names_of(cores)
        speeds = {core: speed for core, speed in work.speeds.items() if core in names}
        # Paused work is no reason for more cores.
        waiting = {version: max(0, tokens - work.held_up[version]) for version, tokens in work.outstanding.items()}
        # If there are settled cores, versions that none of them holds are no reason for more cores of that kind.
        settled = any(core["state"] in SETTLED for core in cores)
        movable = {version: tokens for version, tokens in waiting.items() if work.holders.get(version) or not settled}
        remembered = {} if speeds else await self._remembered(v for v, tokens in movable.items() if tokens)
        return OpenLoad(
            tokens=sum(waiting.values()) + sum(work.claimed.values()),
            core_s=core_seconds(movable, work.claimed, speeds, work.holders, remembered),
            cores=len(cores),
            busy=sum(float(core.get("busy", 0)) for core in cores),
            is_known=bool(work.waiting),
        )

    async def _remembered(self, versions: Iterable[str]) -> dict[str, float]:
        """Return the speeds of versions that no living core has measured, from the recent costs of their items."""
        found = {}
        for version in versions:
            whole = (await RateStore(self._link).read(version)).whole
            if whole.core_s > 0:
                found[version] = whole.estimated / whole.core_s
        return found


def names_of(cores: Sequence[Mapping[str, Any]]) -> set[str]:
    """Return the names of cores."""
    return {core["core"] for core in cores}


def scaling(tools: "LoopTools") -> "Loop":
    """Make the keeper's loop that computes how many cores there should be."""
    from corelane.store.link.blocking import Link
    from workers.loops.loop import Loop

    settings = tools.settings

    def begin() -> Callable[[], object]:
        link, name = Link(settings.redis_url), uuid4().hex
        return lambda: link.read(lambda read: Scaler(read, name, settings).look())

    return Loop("scaling", begin, pause_s=SCALE_S, outage=tools.outage)


async def gauges(link: CommonLink) -> list[MetricSample]:
    """Return the desired cores and their backlog as a keeper recently computed them; empty without a recent figure."""
    found = await read_scaling(link)
    if found is None:
        return []
    samples = [MetricSample(m.DESIRED_CORES, found.desired)]
    return samples if found.backlog_core_s is None else [*samples, MetricSample(m.BACKLOG_CORE_S, found.backlog_core_s)]
