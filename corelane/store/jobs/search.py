"""Finds jobs by a filter, newest first, page by page, over all jobs that are kept.

Ids sort by time, so a cursor is the last id that was looked at. The search walks an owner's jobs, or the
sets of ``lua/index.lua`` that hold every match. The filter then reads the jobs themselves, a bounded number for each
page. So a page may be short although more follows.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from corelane.domain.dispatch import PUBLIC
from corelane.domain.ids import id_time
from corelane.domain.job_filter import ALL_OWNERS, JobFacts, JobFilter
from corelane.domain.jobs import JobStatus
from corelane.log import get_logger
from corelane.store import keys
from corelane.store.api_keys import read_keys
from corelane.store.jobs.idempotency import Holder
from corelane.store.jobs.records import FAILED, JobRecord
from corelane.store.link.library import Command
from corelane.store.link.link import CommonLink, pairs

log = get_logger(__name__)

#: Most jobs looked at in one trip, and for one page.
TRIP_JOBS, MAX_JOBS = 200, 2_000

#: Largest difference allowed between the clocks of API hosts, which make ids, and of Redis, which sets creation times,
#: in milliseconds.
CLOCK_SLACK_MS = 60_000

#: Fewest ids read at a time from one of several sources.
LEAST_READ = 8

#: Sorts after every character in an id.
LAST = "\x7f"

#: The sets of jobs by status; succeeded jobs are in none.
LISTED = {
    JobStatus.QUEUED: "open",
    JobStatus.RUNNING: "open",
    JobStatus.FAILED: "failed",
    JobStatus.CANCELED: "canceled",
    JobStatus.EXPIRED: "expired",
}

#: The set of jobs with failed items.
FAILING = "failing"

#: What ``count_jobs`` counts among an owner's jobs, each with its set.
COUNTED = {name: name for name in ("open", "failed", "canceled", "expired")} | {"with_failed_items": FAILING}

FIELDS = ("name", "status", "version", "failed", "created_ms")


@dataclass(frozen=True, slots=True)
class JobPage:
    """Some jobs, newest first, and the cursor of the next page, None at the end."""

    records: list[JobRecord]
    next: str | None


async def find_jobs(
    link: CommonLink, owner: str, wanted: JobFilter, after: str | None, limit: int, cell: str
) -> JobPage:
    """Read a page of the jobs of an owner, or of ALL_OWNERS, that match a filter and are older than the cursor.

    ``cell`` is the service whose name is in the ids.
    """
    owners = [owner] if owner != ALL_OWNERS else await owners_of_jobs(link)
    low, high = _bounds(wanted, cell)
    below = LAST if after is None else after
    is_named = wanted.name is not None or wanted.id
    sources = [] if is_named else [key for owner in owners for key in _sources(owner, wanted)]
    named = await (_owned if wanted.id else _named)(link, owners, wanted)
    chosen: list[str] = []
    looked = 0
    while True:
        most = min(TRIP_JOBS if looked else limit, TRIP_JOBS, MAX_JOBS - looked)
        named = [job for job in named if job < below]
        ids, has_more = await _next_ids(link, sources, named, low, min(high, below), most)
        taken, room = await _choose(link, ids, wanted), limit - len(chosen)
        chosen += taken[:room]
        looked += len(ids)
        below = ids[-1] if ids else below
        has_more, last = (True, chosen[-1]) if len(taken) > room else (has_more, below)
        if not has_more or len(chosen) == limit or looked >= MAX_JOBS:
            return JobPage(await read_records(link, chosen), last if has_more else None)


async def _next_ids(
    link: CommonLink, sources: Sequence[str], named: Iterable[str], low: str, high: str, most: int
) -> tuple[list[str], bool]:
    """Return the highest ids from ``low`` up to ``high`` of sorted sets and of ``named``, and whether more follow."""
    if low >= high:
        sources = ()
    share = most + 1 if len(sources) < 2 else max(LEAST_READ, 4 * most // len(sources))
    rest = (f"({high}", f"[{low}", "BYLEX", "REV", "LIMIT", 0, share)
    read = [[job.decode() for job in jobs] for jobs in await link.many([("ZRANGE", key, *rest) for key in sources])]
    # A source that was not read to its end may have unread ids, all below the last one that was read of it.
    floor = max((ids[-1] for ids in read if len(ids) == share), default="")
    merged = sorted({job for ids in (*read, named) for job in ids if job >= floor}, reverse=True)
    return merged[:most], bool(floor) or len(merged) > most


async def known_owners(link: CommonLink) -> list[str]:
    """Return the owners of API keys, and the owner of requests without a key."""
    return sorted({key.owner for key in await read_keys(link)} | {PUBLIC})


async def owners_of_jobs(link: CommonLink) -> list[str]:
    """Return the owners that have jobs."""
    owners = await known_owners(link)
    has_jobs = await link.many([("EXISTS", keys.owner_jobs(owner)) for owner in owners])
    return [owner for owner, has in zip(owners, has_jobs, strict=True) if has]


async def count_jobs(link: CommonLink, owners: Sequence[str]) -> dict[str, int]:
    """Count the jobs of owners, by status and in all.

    The numbers are read one after the other, so jobs that end meanwhile may make them disagree.
    """
    commands: list[Command] = []
    for owner in owners:
        commands.append(("ZCARD", keys.owner_jobs(owner)))
        commands += [("ZCARD", keys.listed(each, owner)) for each in COUNTED.values()]
    found, width = await link.many(commands), 1 + len(COUNTED)
    counts = dict(zip(("all", *COUNTED), (sum(found[place::width]) for place in range(width)), strict=True))
    others = sum(counts[name] for name in ("open", "failed", "canceled", "expired"))
    return counts | {"succeeded": max(0, counts["all"] - others)}


async def read_records(link: CommonLink, jobs: Sequence[str]) -> list[JobRecord]:
    """Read the records of jobs, in order; missing ones are left out."""
    raws = await link.many([("HGETALL", keys.job(job)) for job in jobs])
    found = [_parse(job, dict(pairs(raw))) for job, raw in zip(jobs, raws, strict=True) if raw]
    return [record for record in found if record is not None]


def _parse(job: str, raw: dict[bytes, bytes]) -> JobRecord | None:
    """Parse one of several jobs. One that cannot be read is left out, so that the others are still listed."""
    try:
        return JobRecord.parse(job, raw)
    except (ValueError, KeyError, TypeError) as error:
        log.error("job_unreadable", job_id=job, detail=type(error).__name__)
        return None


def _bounds(wanted: JobFilter, cell: str) -> tuple[str, str]:
    """Return the lowest id that can match, and one above all matching ids. Jobs found by name are not considered."""
    low, top = "", LAST
    if wanted.after_ms is not None:
        low = id_time("job", wanted.after_ms - CLOCK_SLACK_MS, cell)
    if wanted.before_ms is not None:
        top = id_time("job", wanted.before_ms + CLOCK_SLACK_MS, cell)
    if wanted.id_beginning is not None:
        low, top = max(low, wanted.id_beginning), min(top, wanted.id_beginning + LAST)
    return low, top


def _sources(owner: str, wanted: JobFilter) -> list[str]:
    """Return the smallest sets of an owner's jobs that hold every possible match."""
    if wanted.has_failed_items or wanted.code is not None:
        return [keys.listed(FAILING, owner)]
    if wanted.status and JobStatus.SUCCEEDED not in wanted.status:
        return [keys.listed(each, owner) for each in sorted({LISTED[status] for status in wanted.status})]
    return [keys.owner_jobs(owner)]


async def _named(link: CommonLink, owners: Sequence[str], wanted: JobFilter) -> list[str]:
    """Return the jobs that have the wanted name, at most one for each owner."""
    if (name := wanted.wanted_name) is None:
        return []
    texts = await link.many([("GET", keys.name(owner, name)) for owner in owners])
    return [Holder.decode(text).subject for text in texts if text is not None]


async def _owned(link: CommonLink, owners: Sequence[str], wanted: JobFilter) -> list[str]:
    """Return those of the wanted ids that are jobs of these owners."""
    found = await link.many([("HGET", keys.job(job), "owner") for job in wanted.id])
    return [job for job, owner in zip(wanted.id, found, strict=True) if owner is not None and owner.decode() in owners]


async def _choose(link: CommonLink, jobs: Sequence[str], wanted: JobFilter) -> list[str]:
    """Return those of the jobs that match the filter."""
    if wanted.is_empty:
        return list(jobs)
    fields = (*FIELDS, f"{FAILED}{wanted.code}")
    found = await link.many([("HMGET", keys.job(job), *fields) for job in jobs])
    facts = (_facts(job, values) for job, values in zip(jobs, found, strict=True))
    return [each.id for each in facts if each is not None and wanted.take(each)]


def _facts(job: str, values: Iterable[bytes | None]) -> JobFacts | None:
    """Read the facts that a filter looks at; return None if the job is gone."""
    name, status, version, failed, created_ms, of_code = values
    if status is None or version is None or created_ms is None:
        return None
    return JobFacts(
        job,
        None if name is None else name.decode(),
        status.decode(),
        version.decode(),
        int(failed or 0),
        int(created_ms),
        of_code is not None,
    )
