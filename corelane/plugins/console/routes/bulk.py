"""Bulk actions: retry or cancel every job that a filter takes, first as a dry run."""

import orjson
from fastapi import APIRouter

from api.context import REQUEST_CONTEXT
from api.deps import StateDep, SubmitCaller
from api.errors import documented
from api.middleware.edge import JsonRoute
from corelane.domain.audit import AuditAction
from corelane.domain.bulk import BulkAction, BulkRequest, BulkResult
from corelane.domain.ids import is_job_id
from corelane.errors import InvalidInput
from corelane.plugins.console.bulk import Bulk

router = APIRouter(prefix="/v1/jobs", tags=["jobs"], responses=documented(403, 422, 429, 503), route_class=JsonRoute)

#: What the audit calls each action.
AUDITED = {BulkAction.CANCEL: AuditAction.JOBS_CANCEL, BulkAction.RETRY: AuditAction.JOBS_RETRY}


@router.post("/bulk")
async def act_on_jobs(body: BulkRequest, state: StateDep, caller: SubmitCaller) -> BulkResult:
    """Retry or cancel every job that a filter takes, a step of at most 100 jobs a request: go on with `after` while
    `has_more`. With `dry_run` nothing is changed. May be repeated: no job is retried twice.
    """
    if body.after is not None and not is_job_id(body.after):
        raise InvalidInput("`after` is not a cursor; pass the `next` of the step before")
    owner = state.jobs.owner_meant(caller, body.filter.owner)
    result = await state.of(Bulk).step(body, owner, REQUEST_CONTEXT.get())
    if result.done and not body.dry_run:
        skipped = ", ".join(f"{each.count} {each.code}" for each in result.skipped)
        detail = f"{result.done} of {result.matched} jobs" + (f"; {skipped}" if skipped else "")
        subject = orjson.dumps(body.filter.given()).decode()
        await state.audit.write(caller, AUDITED[body.action], subject, detail)
    return result
