"""Failed items, over all jobs."""

import re
from typing import Annotated

from fastapi import APIRouter, Query

from api.deps import JobFilterDep, ReadCaller, StateDep
from api.errors import documented
from corelane.domain.failed_items import FailedItem, FailedItemList, FailureGroup, FailureGroups
from corelane.domain.ids import is_job_id, iso_time
from corelane.domain.jobs import ItemError
from corelane.errors import InvalidInput, fails_again
from corelane.plugins.console.failed_items import FailedCursor, count_failures, find_failed_items

router = APIRouter(prefix="/v1", tags=["jobs"], responses=documented(403, 422, 503))

#: The form of a cursor: a job's id and the index of an item.
CURSOR = re.compile(r"([a-z0-9_]{1,40})\.(\d{1,12})")


@router.get("/failed-items")
async def list_failed_items(
    state: StateDep,
    caller: ReadCaller,
    wanted: JobFilterDep,
    code: Annotated[str | None, Query(max_length=64, description="Only failures with this code of error.")] = None,
    limit: Annotated[int, Query(ge=1, le=100, description="Most items in a page.")] = 20,
    after: Annotated[str | None, Query(max_length=60, description="Cursor of an earlier page's `next`.")] = None,
) -> FailedItemList:
    """List the items that failed, newest job first, of the jobs that the other parameters take as `GET /v1/jobs` does.

    A page may be short, or empty, though `has_more` says to go on. Items whose results were dropped are not listed.
    """
    owner = state.jobs.owner_meant(caller, wanted.owner)
    page = await find_failed_items(state.link, owner, wanted, code, read_cursor(after), limit, state.settings.cell)
    items = [
        FailedItem(
            job=record.id,
            job_name=record.name,
            index=result["index"],
            id=result.get("id"),
            error=None if (error := result.get("error")) is None else ItemError.model_validate(error),
            model=record.version,
            labels=record.labels,
            owner=None if record.owner == caller.owner else record.owner,
            created_at=iso_time(record.created_ms),
            finished_at=None if record.finished_ms is None else iso_time(record.finished_ms),
        )
        for record, result in page.found
    ]
    cursor = None if page.next is None else f"{page.next.job}.{page.next.index}"
    return FailedItemList(data=items, has_more=cursor is not None, next=cursor)


@router.get("/failed-items/codes")
async def count_failed_items(state: StateDep, caller: ReadCaller, wanted: JobFilterDep) -> FailureGroups:
    """Count the items that failed by code of error, of the jobs that the parameters take.

    Jobs that were answered before an upgrade to this are not counted.
    """
    owner = state.jobs.owner_meant(caller, wanted.owner)
    sums, is_whole = await count_failures(state.link, owner, wanted, state.settings.cell)
    groups = [
        FailureGroup(code=code, items=found.items, jobs=found.jobs, retryable=not fails_again(code))
        for code, found in sums.items()
    ]
    return FailureGroups(data=sorted(groups, key=lambda group: (-group.items, group.code)), is_whole=is_whole)


def read_cursor(after: str | None) -> FailedCursor | None:
    """Return the item a cursor points to; raise InvalidInput if it is malformed."""
    if after is None:
        return None
    match = CURSOR.fullmatch(after)
    if match is None or not is_job_id(match[1]):
        raise InvalidInput("`after` is not a cursor; pass the `next` of the page before")
    return FailedCursor(match[1], int(match[2]))
