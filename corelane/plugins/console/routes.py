"""The documented routes: bulk actions, failed items, the overview, the history."""

import re
from typing import Annotated

import orjson
from fastapi import APIRouter, Query

from api.deps import AS_READER, JobFilterDep, ReadCaller, StateDep, SubmitCaller, audit
from api.errors import documented
from api.middleware.edge import JsonRoute
from api.request_facts import REQUEST_FACTS
from api.state import AppState
from corelane.domain.bulk import BulkRequest, BulkResult
from corelane.domain.failed_items import FailedItem, FailedItemList, FailureGroup, FailureGroups
from corelane.domain.history import HistoryInfo, HistoryMark, HistoryPoint
from corelane.domain.ids import is_job_id, iso_time
from corelane.domain.jobs import ItemError
from corelane.domain.overview import Overview
from corelane.errors import InvalidInput, fails_again
from corelane.plugins.console.bulk import Bulk
from corelane.plugins.console.failed_items import FailedCursor, count_failures, find_failed_items
from corelane.plugins.console.history import History, Mark
from corelane.plugins.console.overviews import Overviews
from corelane.plugins.console.points import Point

router = APIRouter(prefix="/v1", responses=documented(403, 422, 503), route_class=JsonRoute)

#: The form of a cursor: a job's id and the index of an item.
CURSOR = re.compile(r"([a-z0-9_]{1,40})\.(\d{1,12})")

#: Points in one reply, and the longest time asked for, in minutes: a week is kept.
MOST_POINTS, WEEK = 400, 7 * 24 * 60

#: This many milliseconds at the start of the time asked for are left out: their point may just be leaving its ring.
EDGE_MS = 5_000


@router.post("/jobs/bulk", tags=["jobs"], responses=documented(429))
async def act_on_jobs(body: BulkRequest, state: StateDep, caller: SubmitCaller) -> BulkResult:
    """Retry or cancel every job that a filter takes, a step of at most 100 jobs a request: go on with `after` while
    `has_more`. With `dry_run` nothing is changed. May be repeated: no job is retried twice.
    """
    if body.after is not None and not is_job_id(body.after):
        raise InvalidInput("`after` is not a cursor; pass the `next` of the step before")
    owner = state.jobs.owner_meant(caller, body.filter.owner)
    result = await state.of(Bulk).step(body, owner, REQUEST_FACTS.get())
    if result.done and not body.dry_run:
        skipped = ", ".join(f"{each.count} {each.code}" for each in result.skipped)
        detail = f"{result.done} of {result.matched} jobs" + (f"; {skipped}" if skipped else "")
        subject = orjson.dumps(body.filter.given()).decode()
        audit(caller, f"jobs.{body.action}", subject, detail)
    return result


@router.get("/failed-items", tags=["jobs"])
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
            owner=None if record.owner == caller.owner else record.owner,
            created_at=iso_time(record.created_ms),
            finished_at=None if record.finished_ms is None else iso_time(record.finished_ms),
        )
        for record, result in page.found
    ]
    cursor = None if page.next is None else f"{page.next.job}.{page.next.index}"
    return FailedItemList(data=items, has_more=cursor is not None, next=cursor)


@router.get("/failed-items/codes", tags=["jobs"])
async def count_failed_items(state: StateDep, caller: ReadCaller, wanted: JobFilterDep) -> FailureGroups:
    """Count the items that failed by code of error, of the jobs that the parameters take.

    Jobs that were answered before an upgrade to this are not counted.
    """
    owner = state.jobs.owner_meant(caller, wanted.owner)
    items, jobs, is_whole = await count_failures(state.link, owner, wanted, state.settings.cell)
    groups = [
        FailureGroup(code=code, items=count, jobs=jobs[code], retryable=not fails_again(code))
        for code, count in items.items()
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


@router.get("/overview", tags=["fleet"])
async def get_overview(state: StateDep, caller: ReadCaller) -> Overview:
    """Return how the service stands: whether the backlog drains, lanes, cores, rates, and what needs an operator."""
    seen = await state.of(Overviews).read()
    return seen if state.jobs.sees_all(caller) else seen.without_owners()


@router.get("/history", tags=["fleet"], dependencies=[AS_READER])
async def get_history(
    state: StateDep,
    minutes: Annotated[int, Query(ge=1, le=WEEK, description="How far back.")] = 60,
) -> HistoryInfo:
    """Show how the service did: a point for each ten seconds of the last six hours, or for each five minutes of the
    last week, 400 at most; and what was changed meanwhile.
    """
    _, points, marks = await read_history(state, minutes)
    return HistoryInfo(
        points=[
            HistoryPoint.model_validate(
                {name: getattr(point, name) for name in HistoryPoint.model_fields if name != "at"}
                | {"at": iso_time(point.at_ms)}
            )
            for point in points
        ],
        marks=[HistoryMark(at=iso_time(mark.at_ms), kind=mark.kind, text=mark.text) for mark in marks],
    )


async def read_history(state: AppState, minutes: int) -> tuple[int, list[Point], list[Mark]]:
    """Return the time now in milliseconds, and the points and marks of the last minutes."""
    history = state.of(History)
    now_ms = await state.link.now_ms()
    since_ms = now_ms - minutes * 60_000 + EDGE_MS
    return now_ms, await history.points(since_ms, MOST_POINTS), await history.marks(since_ms)
