"""Batches: create, read, list, cancel. The keeper runs them (``corelane.plugins.files.batches.task``)."""

import asyncio
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from starlette.responses import StreamingResponse

from api.deps import IdempotencyKey, ReadCaller, StateDep, SubmitCaller
from api.errors import documented
from api.reading import require_json
from api.request_facts import NDJSON, REQUEST_FACTS
from api.requests import JsonRequest
from api.routes.deliveries import DeliveryList, describe
from api.state import AppState
from corelane.domain.api_keys import Caller
from corelane.domain.batches import Batch, BatchList, BatchRequest
from corelane.domain.ids import is_id, new_id
from corelane.errors import InvalidInput, NotFound
from corelane.log import get_logger
from corelane.plugins.files.batches.output import final_lines, growing_lines
from corelane.plugins.files.routes.files import in_threads, page_of, require_file
from corelane.plugins.files.routes.inline import BatchReader
from corelane.plugins.files.store.batches import BatchRecord, BatchStore, NewFile
from corelane.store.file_storage import Storage
from corelane.store.item_files import ItemFiles
from corelane.store.jobs.idempotency import Held, Holder, Once, by_key, start_fingerprint
from corelane.tasks.registry import DIALECTS

log = get_logger(__name__)

router = APIRouter(prefix="/v1/batches", tags=["batches"], responses=documented(403, 404, 422, 503))

BODY = {"application/json": {"schema": {"$ref": "#/components/schemas/BatchRequest"}}}


@router.post("", responses=documented(400, 413), openapi_extra={"requestBody": {"required": True, "content": BODY}})
async def create_batch(
    request: Request, response: Response, state: StateDep, caller: SubmitCaller, key: IdempotencyKey = None
) -> Batch:
    """Have each line of a file, or of `requests`, done. A bad line is named in the error file and harms no other."""
    require_json(request.headers)
    sent, digest = JsonRequest(request.scope, request.receive), start_fingerprint("batches")
    async with BatchReader(state.settings, state.of(Storage), new_id("file", cell=state.settings.cell)) as reader:
        with await sent.enter():
            body = await reader.read(sent.stream(), digest)
        once = None if key is None else by_key(caller.owner, key, digest.hexdigest())
        made = await make_batch(body, response, state, caller, once, reader.file)
        reader.is_kept = reader.file is not None and made.input_file_id == reader.file.id
        return made


async def make_batch(
    body: BatchRequest, response: Response, state: AppState, caller: Caller, once: Once | None, file: NewFile | None
) -> Batch:
    """Make a batch, of a new ``file`` if there is one, once; if the same request was made before, return its batch."""
    if once is not None and (holder := await state.of(BatchStore).holder(once)) is not None:
        return (await replay(state, once, holder, response, caller)).describe()
    await require_input(state, body, caller, file)
    if body.webhook is not None:
        await state.jobs.submitter.check_webhook(body.webhook.url, caller.owner)
    batch = new_id("batch", cell=state.settings.cell)
    try:
        await state.of(BatchStore).begin(batch, caller.owner, body, once, REQUEST_FACTS.get(), file)
    except Held as held:
        if once is None:
            raise
        return (await replay(state, once, held.holder, response, caller)).describe()
    made = await require_batch(state, batch, caller)
    log.info("batch_created", batch_id=batch, file_id=made.input_file, owner=caller.owner)
    return made.describe()


async def require_input(state: AppState, body: BatchRequest, caller: Caller, new: NewFile | None) -> None:
    """Raise NotFound, or InvalidInput for another endpoint, a file that a batch wrote, or not one input."""
    if body.endpoint not in (paths := [each.path for each in DIALECTS.values() if each.line is not None]):
        raise InvalidInput(f"`endpoint` must be {' or '.join(map(repr, paths))}")
    if body.requests or (body.input_file_id is None) == (new is None):
        raise InvalidInput("give either an `input_file_id` or, once, `requests` with at least one {custom_id, body}")
    file = None if body.input_file_id is None else await require_file(state, body.input_file_id, caller)
    if file is not None and file.purpose != "batch":
        raise InvalidInput(
            f"`input_file_id` is a file of the purpose `{file.purpose}`; upload one of the purpose `batch`"
        )


async def replay(state: AppState, once: Once, holder: Holder, response: Response, caller: Caller) -> BatchRecord:
    """Return the batch that the same request made; raise if another request used its key, or NotFound if it is gone."""
    once.require_same(holder)
    record = await state.of(BatchStore).get(holder.subject)
    if record is None or record.owner != caller.owner:
        raise NotFound(f"this Idempotency-Key stands for {holder.subject}, which is kept no longer: use a new key")
    response.headers["Idempotent-Replayed"] = "true"
    return record


@router.get("")
async def list_batches(
    state: StateDep,
    caller: ReadCaller,
    after: Annotated[str | None, Query(max_length=64, description="The last id of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=100, description="Most batches in a page.")] = 20,
) -> BatchList:
    """List the caller's batches, newest first."""
    if after is not None and not is_id("batch", after):
        raise InvalidInput("`after` is not the id of a batch; pass the last id of the page before")
    records = await state.of(BatchStore).page(caller.owner, after, limit + 1)
    return page_of(BatchList, [record.describe() for record in records], limit)


@router.get("/{batch_id}")
async def get_batch(batch_id: str, state: StateDep, caller: ReadCaller) -> Batch:
    """Return a batch as it stands; its counts are live."""
    return (await require_batch(state, batch_id, caller)).describe()


@router.post("/{batch_id}/cancel")
async def cancel_batch(batch_id: str, state: StateDep, caller: SubmitCaller) -> Batch:
    """End a batch with the lines answered by now; one that is being finished, or final, stays as it is."""
    await require_batch(state, batch_id, caller)
    await state.of(BatchStore).cancel(batch_id)
    return (await require_batch(state, batch_id, caller)).describe()


@router.get(
    "/{batch_id}/output",
    response_class=StreamingResponse,
    responses={200: {"content": {NDJSON: {"schema": {"type": "string"}}}}},
)
async def read_output(
    batch_id: str,
    state: StateDep,
    caller: ReadCaller,
    after: Annotated[int, Query(ge=0, description="The `line` of the last one that you have.")] = 0,
) -> StreamingResponse:
    """Stream the lines that are answered or failed by now, in the order of the input, up to the first that is not.

    Once the batch is final, these are the lines of its output file and its error file.
    """
    record = await require_batch(state, batch_id, caller)
    if record.is_final:
        lines = in_threads(await asyncio.to_thread(final_lines, state.of(Storage), record, after))
    else:
        lines = growing_lines(state.store, state.of(BatchStore), ItemFiles(state.settings), record, after)
    return StreamingResponse(lines, media_type=NDJSON)


@router.get("/{batch_id}/deliveries")
async def list_batch_deliveries(batch_id: str, state: StateDep, caller: ReadCaller) -> DeliveryList:
    """List the deliveries of a batch's webhook: sent, pending or given up."""
    record = await require_batch(state, batch_id, caller)
    return DeliveryList(data=[describe(found) for found in await state.deliveries.of(record.id)])


async def require_batch(state: AppState, batch_id: str, caller: Caller) -> BatchRecord:
    """Return the record of a caller's own batch; raise NotFound, also for a batch of another owner."""
    record = await state.of(BatchStore).get(batch_id) if is_id("batch", batch_id) else None
    if record is None or record.owner != caller.owner:
        raise NotFound(f"there is no batch {batch_id[:64]!r}; it never existed, or its time to be kept is over")
    return record
