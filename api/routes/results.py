"""Results of a job: pages, a stream that follows it, and dropping results that the caller has stored."""

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Header, Query, Response
from starlette.responses import StreamingResponse
from starlette.types import Send

from api.deps import JobId, ReadCaller, StateDep, SubmitCaller
from api.errors import documented
from api.jobs import required
from api.request_facts import LINES, NDJSON
from api.state import AppState
from corelane.domain.jobs import Job, ResultList
from corelane.errors import CorelaneError, InvalidInput
from corelane.log import get_logger
from corelane.store.jobs.records import JobRecord
from corelane.store.jobs.results import require_kept

log = get_logger(__name__)

router = APIRouter(prefix="/v1/jobs", tags=["jobs"], responses=documented(403, 404, 410, 422, 503))

#: Results sent in one piece of an NDJSON stream.
STREAM_PAGE = 500

#: A stream that has caught up with its job polls for more this often, in seconds.
STREAM_POLL_S = 0.5


#: The NDJSON form of a job's results, for the OpenAPI document.
STREAMED: dict[int | str, dict[str, Any]] = {
    200: {"content": {NDJSON: {"itemSchema": {"$ref": "#/components/schemas/Result"}}}}
}


@router.get("/{job_id}/results", responses=STREAMED, response_model=ResultList)
async def list_results(
    job_id: JobId,
    state: StateDep,
    caller: ReadCaller,
    after: Annotated[str | None, Query(max_length=20, description="Cursor of an earlier page's `next`.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000, description="Most results in a page.")] = 100,
    accept: Annotated[str, Header(description=f"`{NDJSON}` streams all results, one a line.")] = "application/json",
) -> Response:
    """List results in item order, up to the first item not answered yet; as NDJSON, stream them to the job's end."""
    record = await state.jobs.require(job_id, caller)
    start = record.dropped if after is None else read_cursor(after)
    require_kept(record, start)
    wanted = [kind.partition(";")[0].strip().lower() for kind in accept.split(",")]
    if lines := next((each for each in LINES if each in wanted), None):
        return CuttableStream(stream_results(state, record, start), media_type=lines)
    found = await state.store.results(record, start, limit)
    at = start + len(found)
    has_more = at < record.total or record.is_unread
    page = {"object": "list", "data": found, "has_more": has_more, "next": str(at) if has_more else None}
    return Response(orjson.dumps(page), media_type="application/json")


@router.delete("/{job_id}/results")
async def drop_results(
    job_id: JobId,
    state: StateDep,
    caller: SubmitCaller,
    before: Annotated[int, Query(ge=1, description="Results of items before this one are dropped.")],
) -> Job:
    """Drop results that the caller has stored, so that a large job's results do not fill Redis.

    Whole slices are dropped, and only as far as every item is answered: ``results_from`` says how far. May be repeated.
    """
    record = await state.jobs.require(job_id, caller)
    await state.store.drop(record, before)
    return (await state.jobs.require(job_id, caller)).describe()


async def stream_results(state: AppState, record: JobRecord, at: int) -> AsyncIterator[bytes]:
    """Yield one line per result, until the job is final and all are sent.

    Raise StreamCut when the server stops, NotFound once the job is deleted.
    """
    while True:
        if state.jobs.completions.is_closing:
            raise StreamCut
        found = await state.store.results(record, at, STREAM_PAGE)
        if found:
            at += len(found)
            yield b"".join(orjson.dumps(result, option=orjson.OPT_APPEND_NEWLINE) for result in found)
        elif record.status.is_final:
            return
        else:
            await asyncio.sleep(STREAM_POLL_S)
            record = required(await state.store.get(record.id), record.id)


def read_cursor(after: str) -> int:
    """Return the item number in a cursor; raise InvalidInput if it is malformed."""
    if not re.fullmatch("[0-9]{1,18}", after):
        raise InvalidInput("`after` is not a cursor; pass the `next` of the page before")
    return int(after)


class StreamCut(Exception):
    """Raised by a stream's content if it must end here although there is more."""


class CuttableStream(StreamingResponse):
    """A stream that ends improperly if it is cut, so that a reader does not take a part for the whole."""

    async def stream_response(self, send: Send) -> None:
        """Send the content; the connection is closed after a cut, and after an error: the status was sent already."""
        try:
            await super().stream_response(send)
        except (StreamCut, CorelaneError) as error:
            log.info("stream_cut", detail=str(error))
