"""The audit: who steered the service, and what was done."""

from typing import Annotated

from fastapi import APIRouter, Query

from api.deps import AdminCaller, StateDep
from api.errors import documented
from corelane.domain.audit import AuditList
from corelane.errors import InvalidInput
from corelane.plugins.console.audit import LINE_ID, read_audit

router = APIRouter(prefix="/v1", tags=["fleet"], responses=documented(403, 422, 503))


@router.get("/audit")
async def list_audit(
    state: StateDep,
    caller: AdminCaller,
    limit: Annotated[int, Query(ge=1, le=200, description="Most lines in a page.")] = 50,
    after: Annotated[str | None, Query(max_length=40, description="Cursor of an earlier page's `next`.")] = None,
) -> AuditList:
    """List what was done to the service and to others' jobs, newest first; where keys are not checked, by you.

    The last 10,000 actions are kept.
    """
    if after is not None and not LINE_ID.fullmatch(after):
        raise InvalidInput("`after` is not a cursor; pass the `next` of the page before")
    return await read_audit(state.link, after, limit, None if state.jobs.sees_all(caller) else caller.owner)
