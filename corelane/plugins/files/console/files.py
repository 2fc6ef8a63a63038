"""Files and batches: list, show, upload, start, cancel, delete and download."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from pydantic import ValidationError
from starlette.responses import StreamingResponse

from api.deps import ReadCaller, StateDep, SubmitCaller
from api.state import AppState
from corelane.domain.api_keys import Caller
from corelane.domain.batches import ENDPOINT, FINAL, BatchRequest
from corelane.errors import InvalidInput
from corelane.plugins.console.auth import CONSOLE
from corelane.plugins.console.pages.forms import faults_of, first, go_to, read_form
from corelane.plugins.console.pages.nav import Update
from corelane.plugins.console.pages.page_route import PageRoute
from corelane.plugins.console.pages.render import fragment, render, rights
from corelane.plugins.files.routes import batches as api_batches
from corelane.plugins.files.routes import files as api_files
from corelane.plugins.files.settings import FilesFields

router = APIRouter(prefix=CONSOLE, route_class=PageRoute)

#: Entries on a page.
PAGE_ENTRIES = 25

#: Completion windows that the form offers.
WINDOWS = ("1h", "6h", "24h", "7d", "30d")

After = Annotated[str | None, Query(max_length=64)]


@router.get("/files")
async def show_files(
    request: Request, state: StateDep, caller: ReadCaller, after: After = None, did: str = ""
) -> Response:
    """Show the caller's files, newest first."""
    found = await api_files.list_files(state, caller, after, PAGE_ENTRIES, "desc", None)
    most_bytes = state.settings.of(FilesFields).max_file_bytes
    return render(request, "files.html", files=found, after=after, most_bytes=most_bytes, did=did)


@router.post("/files")
async def upload_file(
    request: Request, state: StateDep, caller: SubmitCaller, content_type: Annotated[str, Header()] = ""
) -> Response:
    """Store an uploaded file and redirect to its page."""
    file = await api_files.upload_file(request, state, caller, content_type)
    return go_to(request, f"files/{file.id}", did="uploaded")


@router.get("/files/{file_id}")
async def show_file(file_id: str, request: Request, state: StateDep, caller: ReadCaller, did: str = "") -> Response:
    """Show one file."""
    file = await api_files.get_file(file_id, state, caller)
    return render(request, "file.html", file=file, windows=WINDOWS, did=did)


@router.get("/files/{file_id}/content")
async def download_file(file_id: str, state: StateDep, caller: ReadCaller) -> StreamingResponse:
    """Send a file's content as a download."""
    return await api_files.read_file(file_id, state, caller)


@router.post("/files/{file_id}/delete")
async def delete_file(file_id: str, request: Request, state: StateDep, caller: SubmitCaller) -> Response:
    """Delete a file."""
    await api_files.delete_file(file_id, state, caller)
    return go_to(request, "files", did="file-deleted")


@router.get("/batches")
async def show_batches(
    request: Request, state: StateDep, caller: ReadCaller, after: After = None, did: str = ""
) -> Response:
    """Show the caller's batches, newest first."""
    found = await api_batches.list_batches(state, caller, after, PAGE_ENTRIES)
    return render(request, "batches.html", batches=found, after=after, final=FINAL, did=did)


@router.post("/batches")
async def start_batch(request: Request, state: StateDep, caller: SubmitCaller) -> Response:
    """Start a batch on a file and redirect to its page."""
    form = await read_form(request)
    asked = {
        "input_file_id": first(form, "input_file_id"),
        "endpoint": ENDPOINT,
        "completion_window": first(form, "completion_window") or "24h",
    }
    try:
        body = BatchRequest.model_validate(asked)
    except ValidationError as error:
        raise InvalidInput("; ".join(faults_of(error, {"input_file_id": "file"}))) from None
    batch = await api_batches.make_batch(body, Response(), state, caller, None, None)
    return go_to(request, f"batches/{batch.id}", did="started")


@router.get("/batches/{batch_id}")
async def show_batch(batch_id: str, request: Request, state: StateDep, caller: ReadCaller, did: str = "") -> Response:
    """Show one batch."""
    shown = await about_batch(batch_id, state, caller)
    shown["deliveries"] = (await api_batches.list_batch_deliveries(batch_id, state, caller)).data
    stream = None if shown["is_final"] else f"page=batch&id={batch_id}"
    return render(request, "batch.html", did=did, stream=stream, **shown)


async def feed(state: AppState, caller: Caller, arguments: Mapping[str, str]) -> Update:
    """Return the changing part of a batch's page while the batch runs."""
    can = rights(caller.scopes)
    shown = await about_batch(arguments.get("id", ""), state, caller)
    return Update({"batch-head": fragment("parts/batch_head.html", can=can, **shown)})


async def about_batch(batch_id: str, state: AppState, caller: Caller) -> dict[str, Any]:
    """Return the data of a batch's page."""
    batch = await api_batches.get_batch(batch_id, state, caller)
    names = ("created", "in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled")
    times = [(name.replace("_", " "), getattr(batch, f"{name}_at")) for name in names]
    return {
        "batch": batch,
        "is_final": batch.status in FINAL,
        "times": [(name, at) for name, at in times if at is not None],
    }


@router.post("/batches/{batch_id}/cancel")
async def cancel_batch(batch_id: str, request: Request, state: StateDep, caller: SubmitCaller) -> Response:
    """Cancel a batch."""
    await api_batches.cancel_batch(batch_id, state, caller)
    return go_to(request, f"batches/{batch_id}", did="batch-canceled")
