"""The number of an owner's jobs in each state, read from the index in the same time for any number of jobs."""

from collections.abc import Sequence

from corelane.domain.jobs import JobStatus
from corelane.store import keys
from corelane.store.jobs.search import FAILED_TERM, LAST, STATUS_TERMS, indexed
from corelane.store.link.library import Command
from corelane.store.link.link import CommonLink

#: What is counted, by the term that such jobs have.
COUNTED = {
    "open": STATUS_TERMS[JobStatus.QUEUED],
    "failed": STATUS_TERMS[JobStatus.FAILED],
    "canceled": STATUS_TERMS[JobStatus.CANCELED],
    "expired": STATUS_TERMS[JobStatus.EXPIRED],
    "with_failed_items": FAILED_TERM,
}


async def count_jobs(link: CommonLink, owners: Sequence[str]) -> dict[str, int] | None:
    """Return the number of jobs of owners by state, and of all; None while the index does not hold every job.

    The numbers are read one after the other, so they may differ by jobs that end meanwhile.
    """
    if not owners:
        return dict.fromkeys(("all", *COUNTED, "succeeded"), 0)
    if not all(await indexed(link, owners)):
        return None
    commands: list[Command] = []
    for owner in owners:
        commands.append(("ZCARD", keys.owner_jobs(owner)))
        commands += [("ZLEXCOUNT", keys.terms(owner), f"[{term} ", f"({term} {LAST}") for term in COUNTED.values()]
    found = await link.many(commands)
    width = 1 + len(COUNTED)
    sums = [sum(found[place::width]) for place in range(width)]
    counts = dict(zip(("all", *COUNTED), sums, strict=True))
    others = sum(counts[name] for name in ("open", "failed", "canceled", "expired"))
    return counts | {"succeeded": max(0, counts["all"] - others)}
