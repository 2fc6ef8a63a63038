"""Read what a form of a page sends, and answer a change with the page that shows its outcome."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from fastapi import Request, Response
from pydantic import ValidationError
from starlette.responses import RedirectResponse

from api.errors import status_of
from corelane.errors import CorelaneError
from corelane.errors.sentences import place_of, relevant, sentence
from corelane.plugins.console.pages.render import HEADERS, base_of, is_htmx
from corelane.plugins.console.pages.snippets import Service

#: What a page says after a change, by the word in its address. Nothing a caller sent is said.
SAID: Mapping[str, str] = {
    "canceled": "Canceled. Items that were answered before keep their answers.",
    "retried": "Retried. This is the new job; it asks again for the items that were not answered.",
    "deleted": "Deleted, with its items and results.",
    "file-deleted": "Deleted.",
    "stored": "Stored. Any job can name it by its id now.",
    "stored-again": "It was stored already; its time begins again.",
    "context-deleted": "Deleted. Jobs that name it already are still answered.",
    "uploaded": "Uploaded. A batch can be started from it now.",
    "started": "Started.",
    "batch-canceled": "Canceled. Lines answered by now are written to the output file.",
    "paused": "Paused. Work in flight ends; jobs are taken in and wait until it is resumed.",
    "resumed": "Resumed. What waited goes on.",
    "redelivered": "Posted again: the same id and bytes, with a new signature.",
}


async def read_form(request: Request) -> dict[str, list[str]]:
    """Return the texts of a form. Browsers send line ends as CRLF; here they are what was typed, LF."""
    found: dict[str, list[str]] = {}
    # The layers around the routes have bounded the body.
    form = await request.form(max_part_size=request.app.state.app_state.settings.max_body_bytes)
    for name, value in form.multi_items():
        if isinstance(value, str):
            found.setdefault(name, []).append(value.replace("\r\n", "\n"))
    return found


def first(form: Mapping[str, Sequence[str]], name: str) -> str:
    """Return a field's text; empty if it is missing."""
    return form[name][0] if form.get(name) else ""


def faults_of(error: ValidationError, names: Mapping[str, str]) -> list[str]:
    """Return what is wrong with a form, one sentence a field; ``names`` are what the form calls fields."""
    told: list[str] = []
    for found in relevant(error.errors()):
        field = place_of(found).rpartition(".")[2]
        told.append(f"{names.get(field, field)}: {sentence(found)}" if field else sentence(found))
    return told


def refusal(error: ValidationError | CorelaneError, names: Mapping[str, str] | None = None) -> tuple[list[str], int]:
    """Return what a list says of an address that it refuses, and the status of its page."""
    if isinstance(error, ValidationError):
        return faults_of(error, names or {}), 422
    return [error.detail], status_of(error)


def go_to(request: Request, address: str, **query: Any) -> Response:
    """Lead to a page of the console, after a change; ``address`` is relative to the console."""
    if query:
        address += "?" + urlencode(query)
    if is_htmx(request):
        return Response(headers={**HEADERS, "HX-Redirect": address})
    return RedirectResponse(base_of(request) + address, 303, HEADERS)


def said(word: str) -> str:
    """Return what a page says for the word in its address."""
    return SAID.get(word, "")


def service_of(request: Request) -> Service:
    """Return where this service is, as the browser sees it, for calls outside the console."""
    home = str(request.url.replace(path="", query="", fragment="")).rstrip("/")
    return Service(home, request.app.state.app_state.settings.requires_keys)
