"""A job's events as a stream (SSE), from any event on: stored ones are sent first, then new ones follow.

A stream ends after `job.completed`, when its job is deleted, and when the server stops; then it says when to reconnect.
While Redis cannot be reached, it stays open.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response
from fastapi.sse import KEEPALIVE_COMMENT, format_sse_event
from pydantic import BaseModel
from starlette.responses import StreamingResponse

from api.deps import JobId, ReadCaller, StateDep
from api.errors import documented
from api.jobs import required
from api.state import AppState
from corelane.domain.events import DATA, ID_PATTERN, EventType, parse_event_id
from corelane.domain.jobs import INLINE_RESULTS, Job
from corelane.errors import NotFound, Unavailable
from corelane.log import get_logger
from corelane.store.jobs.events import BEGINNING, EventId, StoredEvent
from corelane.store.jobs.records import JobRecord

log = get_logger(__name__)


class EventStream(StreamingResponse):
    """Server-sent events.

    FastAPI 0.165's own EventSourceResponse reports a server error if a reader disconnects while an event is being sent.
    """

    media_type = "text/event-stream"

    def __init__(self, content: AsyncIterator[bytes]) -> None:
        """Proxies may neither cache nor buffer the content."""
        super().__init__(content, headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})


router = APIRouter(prefix="/v1/jobs", tags=["jobs"], responses=documented(403, 404, 410, 422, 503))

#: A stream that has sent all events polls for more this often, in seconds; the job's end wakes it at once.
POLL_S = 0.25

#: Up to this many streams of one process poll every ``POLL_S``. If there are more, each polls less often, so that the
#: load on Redis stays the same.
OFTEN = 100

#: A silent stream sends a comment this often, so that no proxy closes it, in seconds.
PING_S = 15.0

#: A reader whose stream breaks reconnects after this time, in milliseconds. When a server stops, the times are spread.
RETRY_MS = 1000
RETRY_SPREAD_MS = (500, 2000)

#: The types of events that are sent; a newer version of Corelane may have written others.
KNOWN = frozenset(EventType)

#: An event's id, or nothing.
ID_OR_NOTHING = f"^({ID_PATTERN})?$"


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return the schema of an event's data, for the OpenAPI document. Its parts are defined in the document already."""
    if model is Job:
        return {"$ref": "#/components/schemas/Job"}
    schema = model.model_json_schema(mode="serialization", ref_template="#/components/schemas/{model}")
    return {name: value for name, value in schema.items() if name != "$defs"}


#: One event (OpenAPI 3.2, section 4.14.4).
ITEM_SCHEMA = {
    "type": "object",
    "required": ["data"],
    "properties": {
        "event": {"type": "string", "enum": [str(each) for each in EventType]},
        "id": {"type": "string", "pattern": f"^{ID_PATTERN}$"},
        "retry": {"type": "integer", "minimum": 0},
        "data": {
            "type": "string",
            "contentMediaType": "application/json",
            "contentSchema": {"anyOf": [schema_of(model) for model in dict.fromkeys(DATA.values())]},
        },
    },
}


@router.get(
    "/{job_id}/events",
    status_code=200,
    response_class=EventStream,
    responses={
        200: {
            "description": "Events in order; the `data` of each is JSON, of the kind that its `event` says.",
            "content": {"text/event-stream": {"itemSchema": ITEM_SCHEMA}},
        },
        204: {"description": "The job is final, and there is nothing after that event: do not come back."},
    },
)
async def follow_job(
    job_id: JobId,
    state: StateDep,
    caller: ReadCaller,
    last_event_id: Annotated[
        str | None,
        Header(pattern=ID_OR_NOTHING, description="The id of the last event that was read; goes before `after`."),
    ] = None,
    after: Annotated[
        str | None, Query(pattern=ID_OR_NOTHING, description="The same, for callers that cannot set headers.")
    ] = None,
) -> Response:
    """Stream a job's events (SSE): `job.running`, `job.progress` (at most two a second) and, last,
    `job.completed` with the job.

    Every event has an id; give the last one you read as `Last-Event-ID`, and the stream goes on after it.
    """
    record = await state.jobs.require(job_id, caller)
    given = last_event_id or after
    place = parse_event_id(given) if given else BEGINNING
    if given and record.status.is_final:
        page = await state.job_events.read(job_id, place)
        if page.is_over and not page.events:
            return Response(status_code=204)
    return EventStream(follow(state, record, place))


async def follow(state: AppState, record: JobRecord, after: EventId) -> AsyncIterator[bytes]:
    """Yield the events after a given one, until the job ends or the server stops."""
    clock = asyncio.get_running_loop().time
    sent = clock()
    yield format_sse_event(retry=RETRY_MS)
    with state.metrics.counted("event_streams"), state.jobs.completions.watch(record.id) as bell:
        while not state.jobs.completions.is_closing:
            bell.clear()
            try:
                page = await state.job_events.read(record.id, after)
                for event in page.events:
                    if event.type in KNOWN:
                        yield await encode(state, record, event)
                        sent = clock()
                    after = event.at
                if page.is_over:
                    return
                if page.events:
                    continue
            except NotFound:
                return
            except Unavailable as error:
                log.info("stream_waits_for_store", detail=error.detail)
            if clock() - sent >= PING_S:
                yield KEEPALIVE_COMMENT
                sent = clock()
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_S * max(1.0, state.metrics.gauges["event_streams"] / OFTEN)):
                    await bell.wait()
    yield format_sse_event(retry=random.randint(*RETRY_SPREAD_MS))


async def encode(state: AppState, record: JobRecord, event: StoredEvent) -> bytes:
    """Return an event in the form that is sent; raise NotFound if it must include the job, and the job is gone."""
    data: BaseModel
    if event.type == EventType.COMPLETED:
        found = await state.store.get(record.id, INLINE_RESULTS)
        data = await state.jobs.describe(required(found, record.id))
    else:
        data = event.describe(record)
    return format_sse_event(data_str=data.model_dump_json(), event=event.type, id=event.id)
