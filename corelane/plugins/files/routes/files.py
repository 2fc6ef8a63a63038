"""Files: upload, list, read, delete. Streamed both ways; their content is never in Redis."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Annotated, Any, TypeVar, cast, get_args
from urllib.parse import quote

from fastapi import APIRouter, Header, Query, Request
from pydantic import ValidationError
from starlette.responses import StreamingResponse

from api.deps import ReadCaller, StateDep, SubmitCaller
from api.errors import documented
from api.state import AppState
from corelane.domain.api_keys import Caller
from corelane.domain.batches import BatchList, ExpiresAfter, FileDeleted, FileList, FileObject, Purpose, Upload
from corelane.domain.ids import is_id, new_id
from corelane.errors import InvalidInput, NotFound, StorageFailed
from corelane.errors.sentences import place_of, sentence
from corelane.log import get_logger
from corelane.plugins.files.routes.multipart import FormReader
from corelane.plugins.files.settings import FilesFields
from corelane.plugins.files.store.files import FileStore, Order, file_fields
from corelane.store.file_storage import Storage

log = get_logger(__name__)

List = TypeVar("List", FileList, BatchList)

router = APIRouter(prefix="/v1/files", tags=["files"], responses=documented(403, 404, 422, 500, 503))

FORM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["purpose", "file"],
    "properties": {
        "purpose": {"type": "string", "enum": [*get_args(Upload)], "description": "What the file is for."},
        "file": {
            "type": "string",
            "format": "binary",
            "description": "JSON lines, one item each; for `user_data` any one file, which items name by its id.",
        },
        "expires_after[anchor]": {"type": "string", "enum": ["created_at"]},
        "expires_after[seconds]": {"type": "integer", "minimum": 3600, "maximum": 2592000},
    },
}


@router.post(
    "",
    responses=documented(400, 413),
    openapi_extra={"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": FORM_SCHEMA}}}},
)
async def upload_file(
    request: Request,
    state: StateDep,
    caller: SubmitCaller,
    content_type: Annotated[str, Header(include_in_schema=False)] = "",
) -> FileObject:
    """Store a file for a batch, or for an item. It is whole before this returns; a form that breaks off leaves none."""
    file = new_id("file", cell=state.settings.cell)
    form = await FormReader(state.settings, state.of(Storage), file).read(content_type, request.stream())
    try:
        purpose, ttl_s = read_fields(form.fields)
        if purpose == "batch":
            form.require_few_lines()
        ttl_s = ttl_s or state.settings.of(FilesFields).files_ttl_s
        fields = file_fields(purpose, form.filename or "", form.bytes)
        await state.of(FileStore).keep(file, caller.owner, ttl_s, fields)
    except BaseException:
        await asyncio.shield(asyncio.to_thread(discard, state, file))
        raise
    log.info("file_kept", file_id=file, bytes=form.bytes, owner=caller.owner)
    return await require_file(state, file, caller)


def read_fields(fields: dict[str, str]) -> tuple[Upload, int | None]:
    """Return a file's purpose, and the seconds to keep it, if given; raise InvalidInput for a wrong field."""
    unknown = set(fields) - {"purpose", "expires_after[anchor]", "expires_after[seconds]"}
    if unknown:
        raise InvalidInput(f"the form has an unknown field {min(unknown)[:64]!r}")
    if (purpose := fields.get("purpose")) not in get_args(Upload):
        raise InvalidInput("`purpose` must be `batch`, or `user_data` for a file that an item names")
    expiry = {name[len("expires_after[") : -1]: value for name, value in fields.items() if name != "purpose"}
    if not expiry:
        return cast(Upload, purpose), None
    try:
        return cast(Upload, purpose), ExpiresAfter.model_validate(expiry).seconds
    except ValidationError as error:
        first = error.errors()[0]
        raise InvalidInput(f"expires_after[{place_of(first)}]: {sentence(first)}") from None


def discard(state: AppState, file: str) -> bool:
    """Delete a file's content; return False if the storage fails, so that the keeper must do it later."""
    try:
        state.of(Storage).delete(file)
    except StorageFailed as error:
        log.warning("file_left_for_the_keeper", file_id=file, detail=error.detail)
        return False
    return True


@router.get("")
async def list_files(
    state: StateDep,
    caller: ReadCaller,
    after: Annotated[str | None, Query(max_length=64, description="The last id of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=10_000, description="Most files in a page.")] = 10_000,
    order: Annotated[Order, Query(description="By the time they were kept.")] = "desc",
    purpose: Annotated[Purpose | None, Query(description="Only files for this.")] = None,
) -> FileList:
    """List the caller's files, newest first."""
    if after is not None and not is_id("file", after):
        raise InvalidInput("`after` is not the id of a file; pass the last id of the page before")
    return page_of(FileList, await state.of(FileStore).page(caller.owner, after, limit + 1, order, purpose), limit)


@router.get("/{file_id}")
async def get_file(file_id: str, state: StateDep, caller: ReadCaller) -> FileObject:
    """Return a file's description."""
    return await require_file(state, file_id, caller)


@router.get(
    "/{file_id}/content",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}},
)
async def read_file(file_id: str, state: StateDep, caller: ReadCaller) -> StreamingResponse:
    """Stream a file's content."""
    file = await require_file(state, file_id, caller)
    chunks = await asyncio.to_thread(state.of(Storage).read, file_id)
    headers = {
        "Content-Length": str(file.bytes),
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(file.filename, safe='')}",
    }
    return StreamingResponse(in_threads(chunks), media_type="application/octet-stream", headers=headers)


async def in_threads(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield chunks that are read in threads."""
    while chunk := await asyncio.to_thread(next, chunks, b""):
        yield chunk


@router.delete("/{file_id}")
async def delete_file(file_id: str, state: StateDep, caller: SubmitCaller) -> FileDeleted:
    """Delete a file. A batch that has read it goes on without it; one that has not read it fails."""
    await require_file(state, file_id, caller)
    await state.of(FileStore).forget(file_id, caller.owner)
    if await asyncio.to_thread(discard, state, file_id):
        await state.of(FileStore).retired([file_id], [])
    return FileDeleted(id=file_id)


async def require_file(state: AppState, file_id: str, caller: Caller) -> FileObject:
    """Return a caller's own file; raise NotFound, also for a file of another owner."""
    file = await state.of(FileStore).get(file_id, caller.owner) if is_id("file", file_id) else None
    if file is None:
        raise NotFound(f"there is no file {file_id[:64]!r}; it never existed, was deleted, or its time is over")
    return file


def page_of(kind: type[List], found: Sequence[Any], limit: int) -> List:
    """Return the first files or batches as a page; one entry beyond the limit shows that more follow."""
    data = list(found[:limit])
    ends = {"first_id": data[0].id, "last_id": data[-1].id} if data else {}
    return kind(data=data, has_more=len(found) > limit, **ends)
