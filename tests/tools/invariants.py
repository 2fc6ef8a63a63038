"""The invariants of the metrics: what every process shows is what the store holds, after every scenario.

The truth is read from Redis as it lies there, job by job and ref by ref, with none of the code that keeps the counters.
It is read while nothing happens.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from corelane.cli.redis_users import with_user
from corelane.metrics import definitions as m
from corelane.metrics.exposition import MetricSample
from corelane.metrics.series import Series
from corelane.store.gauges import read_all
from corelane.store.link.blocking import Link

#: Gauges of cores that only living cores have; ``core_up`` tells that a core was lost.
OF_LIVING_CORES = (m.CORE_BUSY, m.CORE_OUT, m.CORE_RESTARTS, m.CORE_MEMORY, m.CORE_DEVICE, *m.CORE_WORK.values())


def check_invariants(raw: Any, url: str = "") -> list[str]:
    """Return what the metrics say wrongly; ``raw`` is a client that decodes replies, ``url`` its URL unless plain."""
    if not url:
        given = raw.connection_pool.connection_kwargs
        url = f"redis://{given['host']}:{given['port']}/{given.get('db', 0)}"
        url = with_user(url, given["username"] or "default", given["password"]) if given.get("password") else url
    link = Link(url)
    try:
        series, samples = link.read(read_all)
    finally:
        link.close()
    problems = [*problems_of_counters(raw, series), *problems_of_gauges(raw, samples)]
    return [f"{what}: shown {shown}, true {true}" for what, shown, true in problems if shown != true]


Finding = tuple[str, object, object]


def problems_of_counters(raw: Any, series: Series) -> Iterator[Finding]:
    """Compare what was counted with what is left."""
    jobs = [dict(raw.hgetall(key)) for key in raw.scan_iter("cl:job:*", count=1000)]
    open_jobs = [job for job in jobs if job["status"] in ("queued", "running")]
    ended = series.total(m.JOBS_ENDED)
    yield "jobs submitted", series.total(m.JOBS_SUBMITTED), ended + len(open_jobs)
    left = sum(int(job["left"]) for job in open_jobs)
    yield "items submitted", series.total(m.ITEMS_SUBMITTED), series.total(m.ITEMS) + left
    answered = series.total(m.JOBS_ENDED, "succeeded") + series.total(m.JOBS_ENDED, "failed")
    yield "answered jobs in job_seconds", series.histogram(m.JOB_S).count, answered
    for metric, found in series.counters.items():
        yield f"{metric.name} is not negative", min(found.values()) >= 0, True


def problems_of_gauges(raw: Any, samples: list[MetricSample]) -> Iterator[Finding]:
    """Compare gauges with jobs, refs and claims."""
    shown: dict[m.Metric, dict[tuple[str, ...], float]] = {}
    for sample in samples:
        shown.setdefault(sample.metric, {})[sample.labels] = sample.value
    waiting, claimed, owed = refs_in_lanes(raw), refs_in_claims(raw), Counter[str]()
    open_jobs, items = open_work(raw)
    yield "open jobs", nonzero(shown[m.OPEN_JOBS]), nonzero(open_jobs)
    yield "open items", shown[m.OPEN_ITEMS][()], items
    yield "waiting tokens", nonzero(shown[m.WAITING_TOKENS]), tokens_by(waiting, 0)
    yield "claimed tokens", nonzero(shown.get(m.CLAIMED_TOKENS, {})), tokens_by(claimed, 0)
    for _, owner, tokens in (*waiting, *claimed):
        owed[owner] += tokens
    yield "owed tokens", {name: int(tokens) for name, tokens in raw.hgetall("cl:owed").items()}, dict(owed)
    living = {key.removeprefix("cl:core:") for key in raw.scan_iter("cl:core:*", count=1000)}
    for metric in OF_LIVING_CORES:
        yield f"{metric.name} of dead cores", {labels[0] for labels in shown.get(metric, {})} - living, set()
    yield "cores that are up", {labels[0] for labels, up in shown.get(m.CORE_UP, {}).items() if up}, living
    pending = sum(raw.zcard(key) for key in raw.scan_iter("cl:due:*", count=1000))
    yield "pending deliveries", shown[m.DELIVERIES_PENDING][()], pending
    seconds = shown[m.BACKLOG_S][()]
    yield "the backlog", seconds > 0, seconds > 0 and bool(waiting or claimed or open_jobs)


def nonzero(values: dict[tuple[str, ...], float]) -> dict[tuple[str, ...], float]:
    return {labels: value for labels, value in values.items() if value}


Ref = tuple[str, str, int]


def tokens_by(refs: list[Ref], place: int) -> dict[tuple[str, ...], float]:
    found: Counter[tuple[str, ...]] = Counter()
    for ref in refs:
        found[(str(ref[place]),)] += ref[2]
    return dict(found)


def open_work(raw: Any) -> tuple[dict[tuple[str, ...], float], int]:
    """Count jobs that are not final, by priority, and their items."""
    names, jobs, items = ("high", "normal", "low"), Counter[tuple[str, ...]](), 0
    for key in raw.scan_iter("cl:job:*", count=1000):
        status, priority, left = raw.hmget(key, "status", "priority", "left")
        if status in ("queued", "running"):
            jobs[(names[int(priority)],)] += 1
            items += int(left)
    return dict(jobs), items


def refs_in_lanes(raw: Any) -> list[Ref]:
    """Return the refs that wait, as version, owner and tokens."""
    found = []
    for pattern in ("cl:lane:*", "cl:refs:*", "cl:returned:*"):
        for key in raw.scan_iter(pattern, count=1000):
            for ref in raw.lrange(key, 0, -1):
                parts = ref.split(":")
                version = raw.hget(f"cl:job:{{{parts[0]}}}", "version") or key.split(":")[2]
                found.append((version, parts[1], int(parts[6])))
    return found


def refs_in_claims(raw: Any) -> list[Ref]:
    """Return the refs that cores hold, as core, owner and tokens."""
    found = []
    for key in raw.scan_iter("cl:claim:*", count=1000):
        core = key.removeprefix("cl:claim:").rpartition("#")[0]
        for ref in raw.hvals(key):
            parts = ref.split(":")
            found.append((core, parts[1], int(parts[6])))
    return found
