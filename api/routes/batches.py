"""Batches: create, read, list, cancel. The keeper runs them (``workers.batches.task``)."""

from typing import Annotated

from fastapi import APIRouter, Body, Query, Request, Response

from api.context import REQUEST_CONTEXT
from api.deps import IdempotencyKey, Parts, PartsDep, ReadCaller, SubmitCaller
from api.errors import documented
from api.middleware.edge import JsonRoute
from api.routes.files import page_of, require_file
from corelane.domain.api_keys import Caller
from corelane.domain.batches import Batch, BatchList, BatchRequest
from corelane.domain.ids import is_id, new_id
from corelane.errors import InvalidInput, NotFound
from corelane.log import get_logger
from corelane.store.batches import BatchRecord
from corelane.store.jobs.idempotency import Held, Holder, Once, by_key, fingerprint

log = get_logger(__name__)

router = APIRouter(
    prefix="/v1/batches", tags=["batches"], responses=documented(403, 404, 422, 503), route_class=JsonRoute
)


@router.post("", responses=documented(400, 413))
async def create_batch(
    request: Request,
    body: Annotated[BatchRequest, Body()],
    response: Response,
    parts: PartsDep,
    caller: SubmitCaller,
    key: IdempotencyKey = None,
) -> Batch:
    """Have every line of an uploaded file answered. A bad line is named in the error file and harms no other."""
    once = None
    if key is not None:
        asked = fingerprint("batches", await request.body())
        once = by_key(caller.owner, key, asked, parts.settings.idempotency_ttl_s)
        if (holder := await parts.batches.holder(once)) is not None:
            return (await replay(parts, once, holder, response, caller)).describe()
    file = await require_file(parts, body.input_file_id, caller)
    if file.purpose != "batch":
        raise InvalidInput("`input_file_id` is a file that a batch wrote; upload one of the purpose `batch`")
    batch = new_id("batch")
    try:
        await parts.batches.begin(batch, caller.owner, body, once, REQUEST_CONTEXT.get())
    except Held as held:
        if once is None:
            raise
        return (await replay(parts, once, held.holder, response, caller)).describe()
    log.info("batch_created", batch_id=batch, file_id=file.id, owner=caller.owner)
    return (await require_batch(parts, batch, caller)).describe()


async def replay(parts: Parts, once: Once, holder: Holder, response: Response, caller: Caller) -> BatchRecord:
    """Return the batch that the same request made before.

    Raise the error of the ``Once`` if another request made it, NotFound if it is kept no longer.
    """
    once.require_same(holder)
    record = await parts.batches.get(holder.subject)
    if record is None or record.owner != caller.owner:
        raise NotFound(f"this Idempotency-Key stands for {holder.subject}, which is kept no longer: use a new key")
    response.headers["Idempotent-Replayed"] = "true"
    return record


@router.get("")
async def list_batches(
    parts: PartsDep,
    caller: ReadCaller,
    after: Annotated[str | None, Query(max_length=64, description="The last id of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=100, description="Most batches in a page.")] = 20,
) -> BatchList:
    """List the caller's batches, newest first."""
    if after is not None and not is_id("batch", after):
        raise InvalidInput("`after` is not the id of a batch; pass the last id of the page before")
    records = await parts.batches.page(caller.owner, after, limit + 1)
    return page_of(BatchList, records, limit)


@router.get("/{batch_id}")
async def get_batch(batch_id: str, parts: PartsDep, caller: ReadCaller) -> Batch:
    """Return a batch as it stands; its counts are live."""
    return (await require_batch(parts, batch_id, caller)).describe()


@router.post("/{batch_id}/cancel")
async def cancel_batch(batch_id: str, parts: PartsDep, caller: SubmitCaller) -> Batch:
    """End a batch with the lines answered by now; one that is being finished, or final, stays as it is."""
    await require_batch(parts, batch_id, caller)
    await parts.batches.cancel(batch_id)
    return (await require_batch(parts, batch_id, caller)).describe()


async def require_batch(parts: Parts, batch_id: str, caller: Caller) -> BatchRecord:
    """Return the record of a caller's own batch; raise NotFound, for another's batch as well."""
    record = await parts.batches.get(batch_id) if is_id("batch", batch_id) else None
    if record is None or record.owner != caller.owner:
        raise NotFound(f"there is no batch {batch_id[:64]!r}; it never existed, or its time to be kept is over")
    return record
