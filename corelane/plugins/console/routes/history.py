"""The history of the service: how it did over the last hours or days, and what was changed meanwhile."""

from typing import Annotated

from fastapi import APIRouter, Query

from api.deps import AS_READER, StateDep
from api.errors import documented
from api.state import AppState
from corelane.domain.history import HistoryInfo, HistoryMark, HistoryPoint
from corelane.domain.ids import iso_time
from corelane.plugins.console.history import History, Mark
from corelane.plugins.console.points import Point

router = APIRouter(prefix="/v1", tags=["fleet"], responses=documented(403, 422, 503))

#: Points in one answer, and the longest time asked for, in minutes: a week is kept.
MOST_POINTS, WEEK = 400, 7 * 24 * 60

#: The oldest point may just be leaving its ring: it is not asked for, in milliseconds.
EDGE_MS = 5_000


@router.get("/history", dependencies=[AS_READER])
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
