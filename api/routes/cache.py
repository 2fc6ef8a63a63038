"""Cached results: lets an owner delete its own."""

from typing import Annotated

from fastapi import APIRouter, Query

from api.deps import StateDep, SubmitCaller
from api.errors import documented
from corelane.domain.audit import AuditAction

router = APIRouter(prefix="/v1", tags=["jobs"], responses=documented(403, 422, 503))


@router.delete("/cache", status_code=204)
async def clear_cache(
    state: StateDep,
    caller: SubmitCaller,
    owner: Annotated[
        str | None,
        Query(
            min_length=1,
            max_length=64,
            description="Another owner's results, or `*` for all: for keys of scope `admin`, where keys are checked.",
        ),
    ] = None,
) -> None:
    """Forget the results that are kept for equal items of yours. Jobs and their results stay. May be repeated."""
    meant = state.jobs.owner_meant(caller, owner)
    await state.store.clear_cache(meant)
    await state.audit.write(caller, AuditAction.CACHE_CLEAR, meant)
