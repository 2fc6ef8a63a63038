"""``GET /v1/scaling``: how many cores the open work asks for."""

from fastapi import APIRouter

from api.deps import AS_READER, StateDep
from api.errors import documented
from corelane.domain.scaling import ScalingInfo
from corelane.errors import NotReady
from corelane.store.scaling import read_scaling

router = APIRouter(prefix="/v1", tags=["fleet"], responses=documented(403, 503))


@router.get("/scaling", dependencies=[AS_READER])
async def get_scaling(state: StateDep) -> ScalingInfo:
    """Return how many cores there are, and how many the open work asks for; for scalers. 503 while no keeper runs."""
    found = await read_scaling(state.link)
    if found is None:
        raise NotReady("no keeper has told how many cores the work asks for; check that `corelane keeper` runs")
    return found
