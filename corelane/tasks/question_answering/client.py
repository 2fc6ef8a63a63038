"""The client's calls for questions, and for stored contexts, which a job names by ``context_id``."""

from typing import Any

from corelane.client.endpoints import JSON, Call, of, page_params, read_nothing
from corelane.client.protocol import LARGE_PAGE_ENTRIES, ServiceProtocol
from corelane.client.steps import Exchange, Iteration
from corelane.client.wire import dump_body
from corelane.domain.jobs import Result
from corelane.domain.texts import TextInfo, TextList, text_id


def ask(
    service: ServiceProtocol,
    /,
    question: str,
    context: str | None = None,
    *,
    context_id: str | None = None,
    model: str = "default",
    **options: Any,
) -> Exchange[Result]:
    """Ask one question about a passage or a stored context, and wait for its answer without limit.

    ``options`` are the options of a job.
    """
    given = {"question": question, "context": context, "context_id": context_id}
    item = {name: part for name, part in given.items() if part is not None}
    return (yield from service.results_of([item], model=model, options=options))[0]


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
