"""Files: upload, list, read, delete. Streamed both ways; their content never lies in Redis."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Header, Query, Request
from pydantic import ValidationError
from starlette.responses import StreamingResponse

from api.deps import Caller, Parts, PartsDep, Reader, Submitter
from api.errors import documented
from api.multipart import FormReader
from api.routes.pagination import page_of
from corelane.domain.batches import ExpiresAfter, FileDeleted, FileList, FileObject, Purpose
from corelane.domain.ids import is_id, new_id
from corelane.errors import InvalidInput, NotFound, StorageFailed
from corelane.errors.sentences import place_of, sentence
from corelane.log import get_logger
from corelane.store.files import FileRecord, Order, file_fields

log = get_logger(__name__)

router = APIRouter(prefix="/v1/files", tags=["files"], responses=documented(403, 404, 422, 500, 503))

FORM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["purpose", "file"],
    "properties": {
        "purpose": {"type": "string", "enum": ["batch"], "description": "What the file is for."},
        "file": {"type": "string", "format": "binary", "description": "JSON lines, one question each."},
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
    parts: PartsDep,
    caller: Submitter,
    content_type: Annotated[str, Header(include_in_schema=False)] = "",
) -> FileObject:
    """Keep a file for a batch. It is whole and kept before this answers; of a form that breaks off nothing is."""
    file = new_id("file")
    upload = await FormReader(parts.settings, parts.storage, file).read(content_type, request.stream())
    try:
        ttl_s = read_fields(upload.fields) or parts.settings.files_ttl_s
        fields = file_fields("batch", upload.filename or "", upload.bytes)
        await parts.files.keep(file, caller.owner, ttl_s, fields)
    except BaseException:
        await asyncio.shield(asyncio.to_thread(discard, parts, file))
        raise
    log.info("file_kept", file_id=file, bytes=upload.bytes, owner=caller.owner)
    return (await require_file(parts, file, caller)).describe()


def read_fields(fields: dict[str, str]) -> int | None:
    """The seconds a file is to be kept, if they were given; raises InvalidInput for a field that is not right."""
    unknown = set(fields) - {"purpose", "expires_after[anchor]", "expires_after[seconds]"}
    if unknown:
        raise InvalidInput(f"the form has an unknown field {min(unknown)[:64]!r}")
    if fields.get("purpose") != "batch":
        raise InvalidInput("`purpose` must be `batch`: that is all that files are for here")
    expiry = {name[len("expires_after[") : -1]: value for name, value in fields.items() if name != "purpose"}
    if not expiry:
        return None
    try:
        return ExpiresAfter.model_validate(expiry).seconds
    except ValidationError as error:
        first = error.errors()[0]
        raise InvalidInput(f"expires_after[{place_of(first)}]: {sentence(first)}") from None


def discard(parts: Parts, file: str) -> None:
    """Delete what was written of a file that nobody knows."""
    try:
        parts.storage.delete(file)
    except StorageFailed as error:
        log.warning("file_left_for_the_keeper", file_id=file, detail=error.detail)


@router.get("")
async def list_files(
    parts: PartsDep,
    caller: Reader,
    after: Annotated[str | None, Query(max_length=64, description="The last id of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=10_000, description="Most files in a page.")] = 10_000,
    order: Annotated[Order, Query(description="By the time they were kept.")] = "desc",
    purpose: Annotated[Purpose | None, Query(description="Only files for this.")] = None,
) -> FileList:
    """The caller's files, newest first."""
    if after is not None and not is_id("file", after):
        raise InvalidInput("`after` is not the id of a file; pass the last id of the page before")
    records = await parts.files.page(caller.owner, after, limit + 1, order, purpose)
    return page_of(FileList, records, limit)


@router.get("/{file_id}")
async def get_file(file_id: str, parts: PartsDep, caller: Reader) -> FileObject:
    """What is known of a file."""
    return (await require_file(parts, file_id, caller)).describe()


@router.get(
    "/{file_id}/content",
    response_class=StreamingResponse,
    responses={200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}},
)
async def read_file(file_id: str, parts: PartsDep, caller: Reader) -> StreamingResponse:
    """A file's content, streamed."""
    record = await require_file(parts, file_id, caller)
    pieces = await asyncio.to_thread(parts.storage.read, file_id)
    headers = {
        "Content-Length": str(record.size),
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(record.filename, safe='')}",
    }
    return StreamingResponse(in_threads(pieces), media_type="application/octet-stream", headers=headers)


async def in_threads(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Pieces that are waited for in threads."""
    while piece := await asyncio.to_thread(next, pieces, b""):
        yield piece


@router.delete("/{file_id}")
async def delete_file(file_id: str, parts: PartsDep, caller: Submitter) -> FileDeleted:
    """Forget a file. A batch that has read it goes on without it; one that has not, fails."""
    record = await require_file(parts, file_id, caller)
    await parts.files.forget(record)
    try:
        await asyncio.to_thread(parts.storage.delete, file_id)
    except StorageFailed as error:
        log.warning("file_left_for_the_keeper", file_id=file_id, detail=error.detail)
    else:
        await parts.files.retired([file_id], [])
    return FileDeleted(id=file_id)


async def require_file(parts: Parts, file_id: str, caller: Caller) -> FileRecord:
    """The record of a caller's own file; raises NotFound, for another's file as well."""
    record = await parts.files.get(file_id) if is_id("file", file_id) else None
    if record is None or record.owner != caller.owner:
        raise NotFound(f"there is no file {file_id[:64]!r}; it never existed, was deleted, or its time is over")
    return record
