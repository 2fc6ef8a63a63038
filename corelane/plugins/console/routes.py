"""The documented routes: the overview and the history."""

from typing import Annotated

from fastapi import APIRouter, Query

from api.deps import AS_READER, ReadCaller, StateDep
from api.errors import documented
from api.middleware.edge import JsonRoute
from api.state import AppState
from corelane.domain.history import HistoryInfo, HistoryMark, HistoryPoint
from corelane.domain.ids import iso_time
from corelane.domain.overview import Overview
from corelane.plugins.console.history import History, Mark
from corelane.plugins.console.overviews import Overviews
from corelane.plugins.console.points import Point

router = APIRouter(prefix="/v1", responses=documented(403, 422, 503), route_class=JsonRoute)

#: Points in one reply, and the longest time asked for, in minutes: a week is kept.
MOST_POINTS, WEEK = 400, 7 * 24 * 60

#: This many milliseconds at the start of the time asked for are left out: their point may just be leaving its ring.
EDGE_MS = 5_000


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
