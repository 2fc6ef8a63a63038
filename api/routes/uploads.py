"""The other form of ``POST /v1/jobs``: a job sent as lines (NDJSON), as large as the disk allows."""

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from starlette.routing import Match
from starlette.types import Scope

from api.bodies import is_lines
from api.deps import PartsDep, Submitter, Wait
from api.routes.jobs import admit, take_in
from api.uploads import LineReader
from corelane.errors import InvalidInput, NotReady, Overloaded
from corelane.jobs import Job, new_job_id


class LinesRoute(APIRoute):
    """Matches only requests whose body is NDJSON; all others are left to the JSON form."""

    def matches(self, scope: Scope) -> tuple[Match, Any]:
        """Whether this request is ours."""
        return super().matches(scope) if is_lines(scope) else (Match.NONE, {})


router = APIRouter(route_class=LinesRoute, include_in_schema=False)


@router.post("/v1/jobs", status_code=202)
async def submit_lines(request: Request, response: Response, parts: PartsDep, wait: Wait, caller: Submitter) -> Job:
    """Take in a job of one item a line; the first line may be its head: options, priority, contexts and so on."""
    reader = LineReader(parts.settings, request.stream())
    await reader.read_head()
    job_id = new_job_id()
    await admit(parts, job_id, reader.head, caller.owner)
    upload = await reader.keep(job_id)
    try:
        return await take_in(parts, job_id, reader.head, caller.owner, response, wait, upload=upload)
    except (InvalidInput, NotReady, Overloaded):
        (parts.settings.files_root / upload.name).unlink(missing_ok=True)
        raise
