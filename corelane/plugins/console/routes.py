"""The documented routes: the overview and the history."""

from typing import Annotated

from fastapi import APIRouter, Query

from api.deps import AS_READER, ReadCaller, StateDep
from api.errors import documented
from api.reading import JsonRoute
from corelane.domain.overview import Overview
from corelane.plugins.console.history import HistoryInfo, read_history
from corelane.plugins.console.overviews import Overviews

router = APIRouter(prefix="/v1", responses=documented(403, 422, 503), route_class=JsonRoute, tags=["fleet"])

#: How far back a history may go, in minutes: six hours are kept.
Minutes = Annotated[int, Query(ge=1, le=360, description="How far back.")]


@router.get("/overview")
async def get_overview(state: StateDep, caller: ReadCaller) -> Overview:
    """Return how the service stands: what waits and for how long, cores, models, and what needs an operator."""
    seen = await state.of(Overviews).read()
    return seen if state.jobs.sees_all(caller) else seen.without_owners()


@router.get("/history", dependencies=[AS_READER])
async def get_history(state: StateDep, minutes: Minutes = 60) -> HistoryInfo:
    """Show how the service did in the last hours: a point for each ten seconds, 400 at most, and what was changed."""
    return await read_history(state.link, minutes)
