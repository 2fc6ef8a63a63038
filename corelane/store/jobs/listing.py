"""An owner's jobs, newest first, page by page.

Ids sort by time, so the ids of a page are neighbours in the index, and a cursor is the last id that was read: a job
that is there before and after a page was read is listed once, whatever is submitted, deleted or expires meanwhile.
Filters read the jobs themselves, a bounded number for each page, so a page may be short although more follows.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import orjson

from corelane.domain.ids import id_time
from corelane.domain.jobs import JobStatus
from corelane.store import keys
from corelane.store.jobs.records import JobRecord
from corelane.store.link.link import CommonLink, pairs

#: Jobs read in one trip, and for one page at most.
TRIP_JOBS, MAX_JOBS = 200, 4_000

#: API hosts make ids by their clocks, Redis creation times by its own: largest difference allowed, in milliseconds.
CLOCK_SLACK_MS = 60_000

FIELDS = ("status", "version", "labels", "created_ms")


@dataclass(frozen=True, slots=True)
class Filters:
    """Which jobs are listed: those of any of the statuses and all of the labels, created from one time to another.

    ``model`` is a version or a model's name.
    """

    statuses: Collection[JobStatus] = ()
    model: str | None = None
    labels: Sequence[str] = field(default=())
    after_ms: int | None = None
    before_ms: int | None = None

    def take(self, status: str, version: str, labels: Collection[str], created_ms: int) -> bool:
        """Tell whether a job is listed."""
        return (
            (not self.statuses or status in self.statuses)
            and (self.model is None or self.model in (version, version.partition("@")[0]))
            and all(label in labels for label in self.labels)
            and (self.after_ms is None or created_ms >= self.after_ms)
            and (self.before_ms is None or created_ms < self.before_ms)
        )


EVERY = Filters()


@dataclass(frozen=True, slots=True)
class JobPage:
    """Some jobs, newest first, and the cursor of the next page, None at the end."""

    records: list[JobRecord]
    next: str | None


async def list_jobs(link: CommonLink, owner: str, filters: Filters, after: str | None, limit: int) -> JobPage:
    """Read a page of an owner's jobs, older than the one that the cursor names."""
    low = "-" if filters.after_ms is None else f"[{id_time('job', filters.after_ms - CLOCK_SLACK_MS)}"
    high = "+" if filters.before_ms is None else f"({id_time('job', filters.before_ms + CLOCK_SLACK_MS)}"
    if after is not None and (high == "+" or after < high[1:]):
        high = f"({after}"
    records: list[JobRecord] = []
    read = 0
    while True:
        room = limit - len(records)
        ask = min(TRIP_JOBS, MAX_JOBS - read)
        if filters == EVERY:
            ask = min(ask, room)
        found = await link("ZRANGE", keys.owner_jobs(owner), high, low, "BYLEX", "REV", "LIMIT", 0, ask + 1)
        ids = [job.decode() for job in found]
        chosen = await _choose(link, ids[:ask], filters)
        records += await read_records(link, chosen[:room])
        has_more = len(ids) > ask or len(chosen) > room
        if not has_more:
            return JobPage(records, None)
        last = chosen[room - 1] if len(chosen) > room else ids[ask - 1]
        read += ask
        if len(records) >= limit or read >= MAX_JOBS:
            return JobPage(records, last)
        high = f"({last}"


async def read_records(link: CommonLink, jobs: Sequence[str]) -> list[JobRecord]:
    """Read the records of jobs, in order, as far as they are there."""
    raws = await link.many([("HGETALL", keys.job(job)) for job in jobs])
    return [JobRecord.parse(job, dict(pairs(raw))) for job, raw in zip(jobs, raws, strict=True) if raw]


async def _choose(link: CommonLink, jobs: Sequence[str], filters: Filters) -> list[str]:
    """Choose the jobs that the filters take."""
    if filters == EVERY:
        return list(jobs)
    found = await link.many([("HMGET", keys.job(job), *FIELDS) for job in jobs])
    return [
        job
        for job, (status, version, labels, created_ms) in zip(jobs, found, strict=True)
        if status is not None
        and filters.take(status.decode(), version.decode(), orjson.loads(labels or b"[]"), int(created_ms))
    ]
