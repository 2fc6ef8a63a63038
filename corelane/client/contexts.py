"""Stored contexts: put, list, read and delete. A job names one by ``context_id`` instead of sending its text."""

from corelane.client.endpoints import JSON, Call, of, page_params, read_nothing
from corelane.client.protocol import LARGE_PAGE_ENTRIES, ServiceProtocol
from corelane.client.steps import Iteration
from corelane.client.wire import dump_body
from corelane.domain.texts import TextInfo, TextList, text_id


def put_context(text: str, *, name: str | None = None, expires_in_s: int | None = None) -> Call[TextInfo]:
    """Store a passage; its ``id`` is the ``context_id`` of questions about it. Storing it again makes no copy.

    It is kept for ``expires_in_s`` after its last use, or else for the service's default time.
    """
    given = {"text": text, "name": name, "expires_in_s": expires_in_s}
    body = dump_body({part: value for part, value in given.items() if value is not None})
    route, path = "/v1/contexts/{context_id}", {"context_id": text_id(text)}
    return Call("PUT", route, of(TextInfo), path, headers=JSON, content=body)


def get_context(context_id: str) -> Call[TextInfo]:
    """Return a stored context's size, name and times."""
    return Call("GET", "/v1/contexts/{context_id}", of(TextInfo), {"context_id": context_id})


def read_context(context_id: str) -> Call[str]:
    """Read a stored context's text."""
    return Call("GET", "/v1/contexts/{context_id}/text", bytes.decode, {"context_id": context_id})


def delete_context(context_id: str) -> Call[None]:
    """Delete a stored context; tried once. Jobs that already name it are still answered."""
    return Call("DELETE", "/v1/contexts/{context_id}", read_nothing, {"context_id": context_id}, tried_once=True)


def list_contexts(after: str | None, limit: int) -> Call[TextList]:
    """Read one page of stored contexts, newest first."""
    return Call("GET", "/v1/contexts", of(TextList), params=page_params(after, limit))


def contexts(service: ServiceProtocol) -> Iteration[TextInfo]:
    """Iterate over your own stored contexts, newest first."""
    return service.pages(list_contexts, page_entries=LARGE_PAGE_ENTRIES)
