"""The overview of the service."""

from fastapi import APIRouter

from api.deps import ReadCaller, StateDep
from api.errors import documented
from corelane.domain.overview import Overview
from corelane.plugins.console.overviews import Overviews

router = APIRouter(prefix="/v1", tags=["fleet"], responses=documented(403, 422, 503))


@router.get("/overview")
async def get_overview(state: StateDep, caller: ReadCaller) -> Overview:
    """Return how the service stands: whether the backlog drains, lanes, cores, rates, and what needs an operator."""
    seen = await state.of(Overviews).read()
    return seen if state.jobs.sees_all(caller) else seen.without_owners()
