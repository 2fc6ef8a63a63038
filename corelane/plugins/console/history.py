"""The history of the service: one point every ten seconds for six hours, and marks of what was changed.

A keeper makes the points from the sums and gauges that every process can read. Points and marks are streams in Redis,
so the history survives restarts, and any process can show it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

import orjson
from pydantic import BaseModel, Field

from corelane.domain.conditions import ITEMS_FAIL, LEAST_FAILED, LOOP_STANDS, HealthIssue
from corelane.domain.ids import iso_time
from corelane.metrics import definitions as m
from corelane.metrics.series import Histogram, Series, parse
from corelane.plugins.console import keys as own_keys
from corelane.store import keys
from corelane.store.fleet import Fleet
from corelane.store.gauges import count_open_items, read_work
from corelane.store.link.link import CommonLink, Lease, pairs
from corelane.store.metrics import read_sums

if TYPE_CHECKING:
    from workers.loops.loop import Loop, LoopTools

#: Time between two points, in milliseconds, and how many are kept: six hours.
POINT_MS, KEPT = 10_000, 2160

#: How many readings of the sums are kept: the one of a minute ago, and all since.
SAMPLES = 7

#: Sums older than this are not used for current rates, in seconds.
SAMPLES_TTL_S = 120

#: Most points in one reply. If there are more, each point of the reply stands for several.
MOST_POINTS = 400

#: The right to take points. Another process gets it when the holder misses two.
SAMPLER = Lease(own_keys.SAMPLER, ttl_ms=25_000)

#: The metrics whose sums are kept.
SAMPLED = (
    *(m.ITEMS, m.ITEMS_SUBMITTED, m.JOBS_ENDED, m.TOKENS, m.PADDING_TOKENS),
    *(m.JOB_S, m.WAIT_S, m.COMPUTE_S),
)

#: The figures that merge to the worst value of several points: times and queues. Other figures merge to the mean.
WORST = frozenset({"p50_s", "p95_s", "wait_p95_s", "backlog_s", "waiting_tokens", "open_items"})


#: Reads the oldest sums that are kept: those of a minute ago.
MINUTE_AGO = ("XRANGE", own_keys.SAMPLED, "-", "+", "COUNT", 1)

#: An entry of a stream: its id, and its fields with their values.
Entry = tuple[bytes, Sequence[bytes]]


class HistoryPoint(BaseModel):
    """The service's figures for a stretch of time. Rates are per second; a figure that was not measured is null."""

    at: str = Field(description="The end of the time that it stands for.")
    items_s: float = Field(description="Items answered.")
    failed_s: float = Field(description="Items that failed.")
    jobs_s: float = Field(description="Jobs that ended.")
    tokens_s: float = Field(description="Tokens read.")
    p50_s: float | None = Field(description="Median time of a job, in seconds.")
    p95_s: float | None = Field(description="95 in 100 jobs took no longer, in seconds.")
    wait_p95_s: float | None = Field(description="95 in 100 jobs waited no longer for a core, in seconds.")
    backlog_s: float = Field(description="Time that the cores need for all that waits, without what is paused.")
    waiting_tokens: int = Field(description="Tokens that wait, those in files included.")
    open_items: int
    padding_ratio: float | None = Field(description="Padding's share of the tokens read.")
    busy: float | None = Field(description="Share of time that the cores spent on batches.")


class HistoryMark(BaseModel):
    """Something that was changed."""

    at: str
    kind: str = Field(description="deploy, alias, load, unload, core, calibration or pause.")
    text: str


class HistoryInfo(BaseModel):
    """The history of a time, oldest first."""

    object: Literal["history"] = "history"
    points: list[HistoryPoint]
    marks: list[HistoryMark]


@dataclass(frozen=True, slots=True)
class Growth:
    """The growth of the sums between two readings."""

    seconds: float
    before: Series
    now: Series

    @classmethod
    def since(cls, samples: Sequence[Entry], now_ms: int, now: Series) -> "Growth | None":
        """Return the growth since a sample; None without one, or if its time is long ago or still to come."""
        for entry, fields in samples:
            seconds = (now_ms - _time_of(entry)) / 1000
            if 0 < seconds <= SAMPLES_TTL_S:
                return cls(seconds, parse(orjson.loads(fields[1])), now)
        return None

    def grown(self, metric: m.Metric, *labels: str | None) -> float:
        """Return how much a counter grew; its whole value if it restarted at 0."""
        then, now = self.before.total(metric, *labels), self.now.total(metric, *labels)
        return now - then if now >= then else now

    def histogram(self, metric: m.Metric, *labels: str) -> Histogram:
        """Return the histogram of the values that were added."""
        if not labels:
            return self.now.histogram(metric).since(self.before.histogram(metric))
        nothing = Histogram(metric.buckets, (0.0,) * (len(metric.buckets) + 1))
        found = self.now.histograms.get(metric, {}).get(labels, nothing)
        return found.since(self.before.histograms.get(metric, {}).get(labels))


async def read_history(link: CommonLink, minutes: int) -> HistoryInfo:
    """Return the points and marks of the last minutes, oldest first."""
    since_ms = max(0, await link.now_ms() - minutes * 60_000)
    streams = (own_keys.HISTORY, keys.MARKS)
    points, marks = await link.many([("XRANGE", stream, since_ms, "+") for stream in streams])
    figures = [{"at_ms": _time_of(entry)} | orjson.loads(fields[1]) for entry, fields in points]
    size = max(1, -(-len(figures) // MOST_POINTS))
    thinned = [merge(figures[at : at + size]) for at in range(0, len(figures), size)]
    told = [(_time_of(entry), {name.decode(): text.decode() for name, text in pairs(flat)}) for entry, flat in marks]
    return HistoryInfo(
        points=[HistoryPoint.model_validate(each | {"at": iso_time(each["at_ms"])}) for each in thinned],
        marks=[HistoryMark(at=iso_time(at_ms), kind=mark["kind"], text=mark["text"]) for at_ms, mark in told],
    )


def merge(points: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge consecutive points into one, at the time of the last."""
    merged = dict(points[-1])
    for name in merged.keys() - {"at_ms"} if len(points) > 1 else ():
        known = [point[name] for point in points if point[name] is not None]
        merged[name] = (max(known) if name in WORST else fmean(known)) if known else None
    return merged


def make_point(growth: Growth) -> dict[str, Any]:
    """Return the figures of the time between two readings, except the gauges."""
    seconds, jobs = growth.seconds, growth.histogram(m.JOB_S)
    tokens, padding = growth.grown(m.TOKENS), growth.grown(m.PADDING_TOKENS)
    failed = growth.grown(m.ITEMS, None, "failed")
    return {
        "items_s": (growth.grown(m.ITEMS, None, "succeeded") + failed) / seconds,
        "failed_s": failed / seconds,
        "jobs_s": growth.grown(m.JOBS_ENDED) / seconds,
        "tokens_s": tokens / seconds,
        "p50_s": jobs.quantile(0.5),
        "p95_s": jobs.quantile(0.95),
        "wait_p95_s": growth.histogram(m.WAIT_S).quantile(0.95),
        "padding_ratio": padding / (tokens + padding) if tokens + padding else None,
    }


class Sampler:
    """Takes the points, if no other process does. ``name`` is unique to the sampler."""

    def __init__(self, link: CommonLink, name: str) -> None:
        self._link = link
        self._name = name

    async def sample(self) -> None:
        """Store the sums and the point since the last sums, unless another process has the lease. Raise Unavailable."""
        link = self._link
        if not (await link.many([SAMPLER.take(self._name)]))[0]:
            return
        sums, work, cores = await read_sums(link), await read_work(link), await Fleet(link).cores()
        names = tuple(f"{metric.name}|" for metric in SAMPLED)
        wanted = {field: amount for field, amount in sums.items() if field.startswith(names)}
        now_ms, before = await link.now_ms(), await link("XREVRANGE", own_keys.SAMPLED, "+", "-", "COUNT", 1)
        commands: list[tuple[Any, ...]] = [
            ("XADD", own_keys.SAMPLED, "MAXLEN", SAMPLES, "*", "sums", orjson.dumps(wanted)),
            ("EXPIRE", own_keys.SAMPLED, SAMPLES_TTL_S),
            ("HSET", keys.ROUNDS, "history", now_ms),
        ]
        now = parse(sums)
        if growth := Growth.since(before, now_ms, now):
            busy = [float(core.get("busy", 0)) for core in cores if "state" in core]
            point = make_point(growth) | {
                "backlog_s": await work.backlog_s(link),
                "waiting_tokens": sum(work.outstanding.values()),
                "open_items": count_open_items(now),
                "busy": fmean(busy) if busy else None,
            }
            rounded = {name: round(value, 4) if isinstance(value, float) else value for name, value in point.items()}
            commands.append(("XADD", own_keys.HISTORY, "MAXLEN", "~", KEPT, "*", "point", orjson.dumps(rounded)))
        await link.run("write", commands=commands)


def sampling(tools: "LoopTools") -> "Loop":
    """Make the keeper's loop that takes the points."""
    from corelane.store.link.blocking import Link
    from workers.loops.loop import Loop

    def begin() -> Callable[[], object]:
        link, name = Link(tools.settings.redis_url), uuid4().hex
        return lambda: link.read(lambda read: Sampler(read, name).sample())

    return Loop("history", begin, pause_s=POINT_MS / 1000, outage=tools.outage)


async def health_issues(link: CommonLink) -> list[HealthIssue]:
    """Return issues: versions whose items failed in the last minute; a keeper that sweeps but takes no points."""
    rounds, sample = await link.many([("HMGET", keys.ROUNDS, "sweeps", "history"), MINUTE_AGO])
    now_ms, found = await link.now_ms(), list[HealthIssue]()
    if growth := Growth.since(sample, now_ms, parse(await read_sums(link))):
        for version in sorted({version for version, _ in growth.now.counters.get(m.ITEMS, {})}):
            failed = int(growth.grown(m.ITEMS, version, "failed"))
            ended = failed + int(growth.grown(m.ITEMS, version, "succeeded"))
            if failed > LEAST_FAILED and ITEMS_FAIL.holds(failed / ended):
                found.append(ITEMS_FAIL.issue(version, failed=failed, ended=ended))
    swept_s, taken_s = (0.0 if at is None else (now_ms - int(at)) / 1000 for at in rounds)
    if LOOP_STANDS.holds(taken_s) and not LOOP_STANDS.holds(swept_s):
        told = f"took no point of the history for {taken_s:,.0f} s; see its log"
        found.append(LOOP_STANDS.issue("keeper", told=told))
    return found


def _time_of(entry: bytes) -> int:
    """Return the time in the id of a stream's entry."""
    return int(entry.partition(b"-")[0])
