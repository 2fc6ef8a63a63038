"""An owner's jobs, newest first, page by page.

Ids sort by time, so the ids of a page are a stretch of the index, and a cursor is the last id looked at: whatever is
submitted, deleted or expires between two pages, what stays is listed once. Filters look at the jobs themselves, a
bounded number for each page, so a page may be short though more follows.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import orjson

from corelane.domain.ids import id_time
from corelane.domain.jobs import JobStatus
from corelane.store.jobs.records import JobRecord
from corelane.store.link.aio import AsyncLink
from corelane.store.link.surface import pairs

#: Jobs looked at in one trip, and for one page at most.
LOOK_JOBS, MAX_LOOKED = 200, 4_000

#: Ids are made by the clocks of API hosts, creation times by Redis' own: they may differ by so much, in milliseconds.
CLOCK_SLACK_MS = 60_000

FIELDS = ("status", "version", "labels", "created_ms")


@dataclass(frozen=True, slots=True)
class Filters:
    """What is listed: jobs of any of the statuses and all of the labels; created from one time until before another.

    ``model`` is a version or a model's name.
    """

    statuses: Collection[JobStatus] = ()
    model: str | None = None
    labels: Sequence[str] = field(default=())
    after_ms: int | None = None
    before_ms: int | None = None

    @property
    def look(self) -> bool:
        """Whether jobs must be looked at to tell."""
        return self != Filters()

    def take(self, status: str, version: str, labels: Collection[str], created_ms: int) -> bool:
        """Whether a job is listed."""
        return (
            (not self.statuses or status in self.statuses)
            and (self.model is None or self.model in (version, version.partition("@")[0]))
            and all(label in labels for label in self.labels)
            and (self.after_ms is None or created_ms >= self.after_ms)
            and (self.before_ms is None or created_ms < self.before_ms)
        )


@dataclass(frozen=True, slots=True)
class Page:
    """Some jobs, newest first, and the cursor of the next page, None at the end."""

    records: list[JobRecord]
    next: str | None


async def list_jobs(link: AsyncLink, owner: str, filters: Filters, after: str | None, limit: int) -> Page:
    """A page of an owner's jobs, older than the one a cursor names."""
    low = "-" if filters.after_ms is None else f"[{id_time('job', filters.after_ms - CLOCK_SLACK_MS)}"
    high = "+" if filters.before_ms is None else f"({id_time('job', filters.before_ms + CLOCK_SLACK_MS)}"
    if after is not None and (high == "+" or after < high[1:]):
        high = f"({after}"
    records: list[JobRecord] = []
    looked = 0
    while True:
        room = limit - len(records)
        ask = min(LOOK_JOBS, MAX_LOOKED - looked)
        if not filters.look:
            ask = min(ask, room)
        found = await link("ZRANGE", f"cl:index:{owner}", high, low, "BYLEX", "REV", "LIMIT", 0, ask + 1)
        ids = [job.decode() for job in found]
        chosen = await _choose(link, ids[:ask], filters)
        records += await read_records(link, chosen[:room])
        has_more = len(ids) > ask or len(chosen) > room
        if not has_more:
            return Page(records, None)
        last = chosen[room - 1] if len(chosen) > room else ids[ask - 1]
        looked += ask
        if len(records) >= limit or looked >= MAX_LOOKED:
            return Page(records, last)
        high = f"({last}"


async def read_records(link: AsyncLink, jobs: Sequence[str]) -> list[JobRecord]:
    """The records of jobs, in order, as far as they are there."""
    raws = await link.many([("HGETALL", f"cl:job:{{{job}}}") for job in jobs]) if jobs else []
    return [JobRecord.parse(job, dict(pairs(raw))) for job, raw in zip(jobs, raws, strict=True) if raw]


async def _choose(link: AsyncLink, jobs: Sequence[str], filters: Filters) -> list[str]:
    """Those of some jobs that the filters take."""
    if not filters.look or not jobs:
        return list(jobs)
    found = await link.many([("HMGET", f"cl:job:{{{job}}}", *FIELDS) for job in jobs])
    return [
        job
        for job, (status, version, labels, created_ms) in zip(jobs, found, strict=True)
        if status is not None
        and filters.take(status.decode(), version.decode(), orjson.loads(labels or b"[]"), int(created_ms))
    ]
