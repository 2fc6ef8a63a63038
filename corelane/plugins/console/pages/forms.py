"""Read the forms of pages, and reply to a change with the page that shows its outcome."""

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


async def read_form(request: Request) -> dict[str, list[str]]:
    """Return the texts of a form, with line ends as LF. Browsers send them as CRLF."""
    found: dict[str, list[str]] = {}
    for name, value in (await request.form()).multi_items():
        if isinstance(value, str):
            found.setdefault(name, []).append(value.replace("\r\n", "\n"))
    return found


def first(form: Mapping[str, Sequence[str]], name: str) -> str:
    """Return a field's text; empty if it is missing."""
    return form[name][0] if form.get(name) else ""


def faults_of(error: ValidationError, names: Mapping[str, str]) -> list[str]:
    """Return the faults of a form, one sentence for each field; ``names`` are the form's names of fields."""
    told: list[str] = []
    for found in relevant(error.errors()):
        field = place_of(found).rpartition(".")[2]
        told.append(f"{names.get(field, field)}: {sentence(found)}" if field else sentence(found))
    return told


def refusal(error: ValidationError | CorelaneError, names: Mapping[str, str] | None = None) -> tuple[list[str], int]:
    """Return the messages about an address that a list refuses, and the HTTP status."""
    if isinstance(error, ValidationError):
        return faults_of(error, names or {}), 422
    return [error.detail], status_of(error)


def go_to(request: Request, address: str, **query: Any) -> Response:
    """Redirect to a page of the console after a change; ``address`` is relative to the console."""
    if query:
        address += "?" + urlencode(query)
    if is_htmx(request):
        return Response(headers={**HEADERS, "HX-Redirect": address})
    return RedirectResponse(base_of(request) + address, 303, HEADERS)


def service_of(request: Request) -> Service:
    """Return the address of this service as the browser sees it, for calls outside the console."""
    home = str(request.url.replace(path="", query="", fragment="")).rstrip("/")
    return Service(home, request.app.state.app_state.settings.requires_keys)
