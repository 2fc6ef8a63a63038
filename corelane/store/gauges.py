"""Gauges: the present state of the service, read from the store on request.

No process keeps gauges itself. So every process shows the same values, and a process that died leaves none behind.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from corelane.domain.conditions import WORK_OVERDUE
from corelane.domain.jobs import Priority
from corelane.domain.pauses import PauseKind
from corelane.log import PassedOver
from corelane.metrics import definitions as m
from corelane.metrics.exposition import MetricSample
from corelane.metrics.series import Series, parse
from corelane.plugin import installed
from corelane.store import keys
from corelane.store.deliveries.log import DeliveryLog
from corelane.store.fleet import Fleet, read_drain_rate
from corelane.store.link.link import CommonLink, pairs, texts
from corelane.store.metrics import GONE_MS, read_sums
from corelane.store.pauses import read_pauses
from corelane.store.plugin import StorePlugin
from corelane.store.redis_info import Replication, read_info, read_redis

#: The kinds of work that may be overdue, each with the command that does it. Work is overdue if it could go on but no
#: process does it. A delivery to a failing receiver is not overdue.
CARRIERS = {
    "webhooks": "`corelane deliveries`",
    "sweeps": "`corelane keeper`",
    "feeding": "`corelane keeper`",
    **{name: "`corelane keeper`" for plugin in installed(StorePlugin) for name in plugin.overdue},
}

#: Seconds that each kind of work has waited; kinds without work are left out.
Waits = Mapping[str, float]

#: The names of priorities as callers see them, by rank.
PRIORITIES = {priority.rank: priority.value for priority in Priority}

#: Most jobs fed from files whose unfed tokens are counted.
COUNTED_FEEDS = 500

#: Most owners, and most larger jobs of one owner, among which the longest wait is searched.
LOOKED_AT_OWNERS, LOOKED_AT_JOBS = 1000, 100


@dataclass(frozen=True, slots=True)
class Work:
    """The work that is not done.

    By version: ``waiting`` tokens in lanes, ``unfed`` tokens in files, and ``held_up`` tokens of either kind, which a
    pause of the version or of owners holds up. By core: ``claimed`` tokens, and ``speeds`` in tokens a second. By
    version and priority: the time that the oldest work has waited, with paused work (``waited_s``) and without paused
    work (``oldest_s``).
    """

    waiting: Mapping[str, int]
    unfed: Mapping[str, int]
    held_up: Mapping[str, int]
    holders: Mapping[str, Sequence[str]]
    claimed: Mapping[str, int]
    speeds: Mapping[str, float]
    oldest_s: Mapping[tuple[str, str], float]
    waited_s: Mapping[tuple[str, str], float]
    open_jobs: Mapping[str, int]

    @property
    def outstanding(self) -> dict[str, int]:
        """Return the tokens in lanes and files, by version."""
        return {version: tokens + self.unfed.get(version, 0) for version, tokens in self.waiting.items()}

    @property
    def paused(self) -> dict[str, int]:
        """Return the outstanding tokens that a pause holds up, by version."""
        return {v: min(tokens, self.held_up.get(v, 0)) for v, tokens in self.outstanding.items()}

    @property
    def movable(self) -> dict[str, int]:
        """Return the outstanding tokens that no pause holds up, by version."""
        paused = self.paused
        return {version: tokens - paused[version] for version, tokens in self.outstanding.items()}

    async def backlog_s(self, link: CommonLink) -> float:
        """Return how long the cores need for all this work, except what a pause holds up."""
        tokens = sum(self.movable.values()) + sum(self.claimed.values())
        return tokens / await read_drain_rate(link) if tokens else 0.0


async def read_work(link: CommonLink) -> Work:
    """Read the work that is not done."""
    versions, claimed, speeds, oldest, open_jobs = await link.run(
        "outstanding", fed=COUNTED_FEEDS, owners=LOOKED_AT_OWNERS, larger=LOOKED_AT_JOBS
    )
    found = {version.decode(): rest for version, *rest in versions}
    return Work(
        waiting={version: int(waiting) for version, (waiting, *_) in found.items()},
        unfed={version: int(unfed) for version, (_, unfed, *_) in found.items()},
        held_up={version: int(tokens) for version, (*_, tokens) in found.items()},
        holders={version: [core.decode() for core in cores] for version, (_, _, cores, *_) in found.items()},
        claimed={core: int(tokens) for core, tokens in texts(claimed).items()},
        speeds={core: float(speed) for core, speed in texts(speeds).items()},
        oldest_s=_ages(each for each in oldest if not each[3]),
        waited_s=_ages(sorted(oldest, key=lambda each: int(each[2]))),
        open_jobs={PRIORITIES[rank]: int(count) for rank, count in enumerate(open_jobs)},
    )


def _ages(oldest: Iterable[Sequence[Any]]) -> dict[tuple[str, str], float]:
    return {(version.decode(), PRIORITIES[int(rank)]): int(age_ms) / 1000 for version, rank, age_ms, _ in oldest}


async def read_all(link: CommonLink) -> tuple[Series, list[MetricSample]]:
    """Read the sums over all processes, and every gauge."""
    series, work, cores = parse(await read_sums(link)), await read_work(link), await Fleet(link).cores()
    samples = [MetricSample(m.BACKLOG_S, await work.backlog_s(link))]
    samples += [*_work_samples(work, series), *(sample for core in cores for sample in _core_samples(core, work))]
    outcomes, pending, dead, circuits = await DeliveryLog(link).counts()
    samples += [MetricSample(m.DELIVERIES, count, (outcome,)) for outcome, count in outcomes.items()]
    samples += [
        MetricSample(m.DELIVERIES_PENDING, pending),
        MetricSample(m.DELIVERIES_DEAD, dead),
        MetricSample(m.CIRCUITS_OPEN, circuits),
    ]
    samples += [MetricSample(m.PAUSED_S, seconds, (kind,)) for kind, seconds in await _longest_pauses(link)]
    waits = await read_waits(link)
    samples += [MetricSample(m.WAITING_S, waits.get(name, 0.0), (name,)) for name in CARRIERS]
    for plugin in installed(StorePlugin):
        with PassedOver(plugin.name, "gauges"):
            samples += await plugin.gauges(link)
    samples += [*await _read_processes(link), *await _read_redis(link), MetricSample(m.STORE_UP, 1)]
    return series, samples


def count_open_items(series: Series) -> int:
    """Return the number of items that are not final."""
    return max(0, int(series.total(m.ITEMS_SUBMITTED) - series.total(m.ITEMS)))


def _work_samples(work: Work, series: Series) -> Iterator[MetricSample]:
    for version, tokens in work.waiting.items():
        yield MetricSample(m.WAITING_TOKENS, tokens, (version,))
        yield MetricSample(m.PAUSED_TOKENS, work.paused[version], (version,))
        yield MetricSample(m.VERSION_CORES, len(work.holders[version]), (version,))
    for lane, seconds in work.oldest_s.items():
        yield MetricSample(m.OLDEST_WAIT_S, seconds, lane)
    for priority, count in work.open_jobs.items():
        yield MetricSample(m.OPEN_JOBS, count, (priority,))
    yield MetricSample(m.OPEN_ITEMS, count_open_items(series))


async def _longest_pauses(link: CommonLink) -> list[tuple[str, float]]:
    """Read how long the longest pause of each kind has lasted; 0 if there is none."""
    pauses, now_ms = await read_pauses(link), await link.now_ms()
    lasting = {
        pause.kind: now_ms / 1000 - datetime.fromisoformat(pause.since).timestamp() for pause in pauses.all[::-1]
    }
    return [(kind.value, max(0.0, lasting.get(kind, 0.0))) for kind in PauseKind]


def _core_samples(beat: Mapping[str, Any], work: Work) -> Iterator[MetricSample]:
    """Yield the samples of a core's heartbeat. For a lost core: only that it is lost, and the work it still holds."""
    core, is_up = beat["core"], "state" in beat
    yield MetricSample(m.CORE_UP, float(is_up), (core,))
    held = work.claimed.get(core, 0)
    if is_up or held:
        yield MetricSample(m.CLAIMED_TOKENS, held, (core,))
    if not is_up:
        return
    yield MetricSample(m.CORE_BUSY, float(beat.get("busy", 0)), (core,))
    yield MetricSample(m.CORE_OUT, float(beat["state"] == "out_of_service"), (core,))
    yield MetricSample(m.CORE_WAITING, float(beat["state"] == "waiting"), (core,))
    failed = [model for model in orjson.loads(beat.get("models", "[]")) if model["state"] == "failed"]
    yield MetricSample(m.CORE_FAILED_MODELS, len(failed), (core,))
    if "core_s" in beat:
        yield MetricSample(m.CORE_S, float(beat["core_s"]), (core,))
    yield MetricSample(m.CORE_RESTARTS, float(beat.get("restarts", 0)), (core,))
    for name, metric in m.CORE_WORK.items():
        if name in beat:
            yield MetricSample(metric, float(beat[name]), (core,))
    with suppress(ValueError, TypeError, AttributeError):  # What one core says wrongly hides no other core.
        if "memory" in beat:
            yield MetricSample(m.CORE_MEMORY, float(beat["memory"]), (core, "process"))
        device = orjson.loads(beat.get("device", "{}"))
        if (held := device.get("memory_bytes")) is not None:
            yield MetricSample(m.CORE_MEMORY, float(held), (core, "device"))
        if (share := device.get("utilization")) is not None:
            yield MetricSample(m.CORE_DEVICE, float(share), (core,))
        for kind, count in device.get("errors", {}).items():
            yield MetricSample(m.CORE_DEVICE_ERRORS, float(count), (core, kind))


async def _read_processes(link: CommonLink) -> list[MetricSample]:
    """Read the gauges of living processes, and how long ago each loop finished a round."""
    now = await link.now_ms()
    living, rounds = await link.many(
        [("ZRANGEBYSCORE", keys.PROCESSES, now - GONE_MS, "+inf"), ("HGETALL", keys.ROUNDS)]
    )
    streams = await link.many([("HGET", keys.process(process.decode()), "event_streams") for process in living])
    ages = [MetricSample(m.LOOP_AGE_S, max(0, now - int(at)) / 1000, (loop.decode(),)) for loop, at in pairs(rounds)]
    return [
        MetricSample(m.EVENT_STREAMS, sum(float(count or 0) for count in streams)),
        *ages,
    ]


async def _read_redis(link: CommonLink) -> list[MetricSample]:
    """Read Redis' memory and the time of its functions; empty if an access list forbids it."""
    info = await read_info(link, "commandstats", "replication")
    if not info:
        return []
    state, replication = await read_redis(link), Replication.parse(info)
    calls = [info[name] for name in ("cmdstat_fcall", "cmdstat_fcall_ro") if name in info]
    usec = sum(int(stats.partition("usec=")[2].partition(",")[0]) for stats in calls)
    return [
        MetricSample(m.REDIS_REPLICAS, replication.replicas),
        MetricSample(m.REDIS_LAG, replication.lag_bytes),
        MetricSample(m.REDIS_MEMORY, state.used_bytes),
        MetricSample(m.REDIS_RESERVED, state.reserved_bytes),
        MetricSample(m.REDIS_MEMORY_LIMIT, state.limit_bytes),
        MetricSample(m.REDIS_WRITES, float(state.can_write)),
        MetricSample(m.REDIS_SCRIPT_S, usec / 1e6),
    ]


async def read_waits(link: CommonLink) -> Waits:
    """Read how long each kind of work has waited although it could go on."""
    return {name.decode(): ms / 1000 for name, ms in pairs(await link.run("overdue")) if ms >= 0}


def only_overdue(waits: Waits) -> Waits:
    """Return the kinds of work that have waited for too long."""
    return {name: waited_s for name, waited_s in waits.items() if WORK_OVERDUE.holds(waited_s)}
