"""Stored contexts: the list, one of them, storing and deleting. A text is shown only on request."""

import re
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import ValidationError

from api.deps import ReadCaller, StateDep, SubmitCaller
from api.errors import status_of
from api.state import AppState
from corelane.domain.api_keys import Caller
from corelane.domain.jobs import DEFAULT_TASK
from corelane.domain.texts import TextBody
from corelane.errors import CorelaneError
from corelane.plugins.console.auth import CONSOLE
from corelane.plugins.console.pages.forms import faults_of, first, go_to, read_form, service_of
from corelane.plugins.console.pages.page_route import PageRoute
from corelane.plugins.console.pages.render import render
from corelane.plugins.console.pages.snippets import task_snippets
from corelane.plugins.files.routes import texts as api_texts
from corelane.plugins.files.routes.texts import TextId
from corelane.plugins.files.settings import FilesFields
from corelane.tasks.registry import TASKS

router = APIRouter(prefix=f"{CONSOLE}/contexts", route_class=PageRoute)

#: Where the pages are, and where one asks about a text, before its id.
PLACES: dict[str, Any] = {"place": "contexts", "ask": "ask?context_id="}

#: Texts on a page.
PAGE_ENTRIES = 25

#: A longer text is shown in part, in characters; the download has the whole text.
MOST_SHOWN = 100_000

#: Times that the form offers besides the longest one, in seconds.
TIMES_S = (3600, 24 * 3600, 7 * 24 * 3600)

#: The form's names for the fields of a context.
FIELD_NAMES = {"text": "passage", "expires_in_s": "kept"}

After = Annotated[str | None, Query(max_length=100)]


@router.get("")
async def show_contexts(
    request: Request, state: StateDep, caller: ReadCaller, after: After = None, did: str = ""
) -> Response:
    """Show the caller's stored contexts, newest first."""
    return await _list(request, state, caller, after, did=did)


@router.post("")
async def store_context(request: Request, state: StateDep, caller: SubmitCaller) -> Response:
    """Store a passage and redirect to its page; show errors beside the form."""
    form = await read_form(request)
    typed = {name: first(form, name) for name in ("text", "name", "expires_in_s")}
    given: dict[str, Any] = {name: text for name, text in typed.items() if text or name == "text"}
    if re.fullmatch("[0-9]{1,18}", typed["expires_in_s"]):
        given["expires_in_s"] = int(typed["expires_in_s"])
    try:
        body = TextBody.model_validate(given)
        api_texts.require_allowed(body, state.settings)
        kept = Response()
        found = await api_texts.keep(state, caller, body, kept)
    except ValidationError as error:
        return await _list(request, state, caller, None, 422, form=typed, faults=faults_of(error, FIELD_NAMES))
    except CorelaneError as error:
        return await _list(request, state, caller, None, status_of(error), form=typed, faults=[error.detail])
    return go_to(request, f"contexts/{found.id}", did="stored" if kept.status_code == 201 else "stored-again")


async def _list(
    request: Request, state: AppState, caller: Caller, after: str | None, status: int = 200, **shown: Any
) -> Response:
    found = await api_texts.list_contexts(state, caller, PAGE_ENTRIES, after)
    longest_s = state.settings.of(FilesFields).context_ttl_s
    about: dict[str, Any] = {"form": dict.fromkeys(("text", "name", "expires_in_s"), ""), "faults": [], "did": ""}
    return render(
        request,
        "texts.html",
        status,
        **PLACES,
        texts=found,
        after=after,
        most_bytes=state.settings.of(FilesFields).max_contexts_bytes,
        longest_s=longest_s,
        times_s=[each for each in TIMES_S if each < longest_s],
        **(about | shown),
    )


@router.get("/{context_id}")
async def show_context(
    context_id: TextId, request: Request, state: StateDep, caller: ReadCaller, did: str = ""
) -> Response:
    """Show one stored context."""
    found = await api_texts.get_context(context_id, state, caller)
    call = TASKS[DEFAULT_TASK].present.call({"question": "What does it say?", "context_id": found.id}, {})
    snippets = task_snippets(service_of(request), call)
    return render(request, "text.html", **PLACES, text=found, did=did, snippets=snippets)


@router.get("/{context_id}/shown")
async def show_text(context_id: TextId, request: Request, state: StateDep, caller: ReadCaller) -> Response:
    """Show the text of a stored context, in part if it is long."""
    text = await api_texts.read_text(context_id, state, caller)
    return render(request, "parts/stored_text.html", text=text[:MOST_SHOWN], chars=len(text))


@router.get("/{context_id}/text")
async def download_text(context_id: TextId, state: StateDep, caller: ReadCaller) -> Response:
    """Send the text of a stored context as a download."""
    return await api_texts.get_context_text(context_id, state, caller)


@router.post("/{context_id}/delete")
async def delete_context(context_id: TextId, request: Request, state: StateDep, caller: SubmitCaller) -> Response:
    """Delete a stored context."""
    await api_texts.delete_context(context_id, state, caller)
    return go_to(request, "contexts", did="text-deleted")
