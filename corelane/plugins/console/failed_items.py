"""List failed items over all jobs, page by page: newest job first, within a job in item order.

Each job notes which slices have failed items, so only these are read. If an earlier version answered a part of the job,
or the job ended early, its results are read in order. A page reads a bounded number of results, so it may be short
although more follow.
"""

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import orjson

from corelane.domain.ids import CELL
from corelane.domain.job_filter import JobFilter
from corelane.domain.jobs import JobStatus
from corelane.store import keys
from corelane.store.jobs.records import JobRecord
from corelane.store.jobs.results import read_results
from corelane.store.jobs.search import find_jobs
from corelane.store.link.link import CommonLink, pairs

#: Jobs read at a time, slices or results of a job read at a time, and most results read for one page.
TRIP_JOBS, TRIP_SLICES, TRIP_RESULTS, MAX_RESULTS = 20, 50, 1_000, 20_000

#: Each job counts as this many results besides those read, so that a page also ends among jobs without failed items.
JOB_RESULTS = 50

#: Most jobs whose failures are counted by code, and how many of them are read at a time.
MAX_COUNTED_JOBS, COUNTED_AT_ONCE = 2_000, 200

#: After an id in a cursor: read the job with that id again.
AGAIN = "!"


@dataclass(frozen=True, slots=True)
class FailedCursor:
    """The last item that was looked at."""

    job: str
    index: int


@dataclass(frozen=True, slots=True)
class FailedPage:
    """Some failed items with their jobs, and the cursor of the next page, None at the end."""

    found: list[tuple[JobRecord, dict[str, Any]]]
    next: FailedCursor | None


async def find_failed_items(
    link: CommonLink,
    owner: str,
    wanted: JobFilter,
    code: str | None,
    after: FailedCursor | None,
    limit: int,
    cell: str = CELL,
) -> FailedPage:
    """Read a page of failed items after the cursor, of the jobs of a filter; ``code`` selects items with that error."""
    wanted = wanted.model_copy(update={"has_failed_items": True})
    found: list[tuple[JobRecord, dict[str, Any]]] = []
    looked = 0
    job = None if after is None else after.job + AGAIN
    while True:
        jobs = await find_jobs(link, owner, wanted, job, TRIP_JOBS, cell)
        for record in jobs.records:
            begin = after.index + 1 if after is not None and after.job == record.id else 0
            async with aclosing(_results(link, record, max(begin, record.dropped))) as parts:
                async for part in parts:
                    for result in part:
                        if is_failure(result, code):
                            found.append((record, result))
                            if len(found) == limit:
                                return FailedPage(found, FailedCursor(record.id, result["index"]))
                    looked += len(part)
                    if part and looked >= MAX_RESULTS:
                        return FailedPage(found, FailedCursor(record.id, part[-1]["index"]))
            looked += JOB_RESULTS
            if looked >= MAX_RESULTS:
                return FailedPage(found, FailedCursor(record.id, record.total))
        job = jobs.next
        if job is None or not jobs.records:
            return FailedPage(found, None if job is None else FailedCursor(job, 0))


async def count_failures(
    link: CommonLink, owner: str, wanted: JobFilter, cell: str = CELL
) -> tuple[Counter[str], Counter[str], bool]:
    """Count failed items and their jobs by code, of ``MAX_COUNTED_JOBS`` or so; say whether these are all."""
    wanted = wanted.model_copy(update={"has_failed_items": True})
    items, jobs = Counter[str](), Counter[str]()
    job, looked = None, 0
    while True:
        page = await find_jobs(link, owner, wanted, job, COUNTED_AT_ONCE, cell)
        for record in page.records:
            items.update(record.failures)
            jobs.update(record.failures.keys())
        job, looked = page.next, looked + COUNTED_AT_ONCE
        if job is None or looked >= MAX_COUNTED_JOBS:
            return items, jobs, job is None


def is_failure(result: dict[str, Any], code: str | None) -> bool:
    """Return whether a result is of a failed item; with a code, whether it has that error."""
    if result["status"] != JobStatus.FAILED:
        return False
    return code is None or (result.get("error") or {}).get("code") == code


async def _results(link: CommonLink, record: JobRecord, begin: int) -> AsyncGenerator[list[dict[str, Any]]]:
    """Yield the results of a job from item ``begin`` on, in parts and in order, or only those that may have failed."""
    slices = {int(first): int(count) for first, count in pairs(await link("HGETALL", keys.failures(record.id)))}
    if record.error is not None or sum(slices.values()) < record.failed:
        at = begin
        while at < record.total and (part := await read_results(link, record, at, TRIP_RESULTS)):
            yield part
            at += len(part)
        return
    firsts = sorted(slices)
    for place in range(0, len(firsts), TRIP_SLICES):
        some = firsts[place : place + TRIP_SLICES]
        if place + TRIP_SLICES < len(firsts) and firsts[place + TRIP_SLICES] <= begin:
            continue
        blobs = await link("HMGET", keys.results(record.id), *some)
        results = [result for blob in blobs if blob is not None for result in orjson.loads(blob)]
        yield [result for result in results if result["index"] >= begin]
