"""Stored contexts: put, listed, read and deleted. A job names one by ``context_id`` in place of its text."""

from corelane.client.endpoints import JSON, Call, of, read_nothing
from corelane.client.protocol import Give, Giving, ServiceProtocol
from corelane.client.wire import dump_body
from corelane.domain.contexts import ContextInfo, ContextList, context_id

#: Contexts asked for in one page.
PAGE_CONTEXTS = 1000


def put_context(text: str, *, name: str | None = None, expires_in_s: int | None = None) -> Call[ContextInfo]:
    """Store a passage, once however often it is put; its ``id`` is the ``context_id`` of questions about it.

    It is kept for as long after its last use as ``expires_in_s`` says, else as the service does.
    """
    given = {"text": text, "name": name, "expires_in_s": expires_in_s}
    body = dump_body({part: value for part, value in given.items() if value is not None})
    route, path = "/v1/contexts/{context_id}", {"context_id": context_id(text)}
    return Call("PUT", route, of(ContextInfo), path, headers=JSON, content=body)


def post_context(text: str) -> Call[ContextInfo]:
    """Store a passage and learn its id, for those who do not compute it; more at ``put_context``."""
    return Call("POST", "/v1/contexts", of(ContextInfo), headers=JSON, content=dump_body({"text": text}))


def get_context(context_id: str) -> Call[ContextInfo]:
    """Return a stored context's size, name and times."""
    return Call("GET", "/v1/contexts/{context_id}", of(ContextInfo), {"context_id": context_id})


def read_context(context_id: str) -> Call[str]:
    """Read a stored context's text."""
    return Call("GET", "/v1/contexts/{context_id}/text", bytes.decode, {"context_id": context_id})


def delete_context(context_id: str) -> Call[None]:
    """Delete a stored context, tried once. Jobs that name it already are answered."""
    return Call("DELETE", "/v1/contexts/{context_id}", read_nothing, {"context_id": context_id}, tried_once=True)


def list_contexts(after: str | None, limit: int) -> Call[ContextList]:
    """Read one page of stored contexts, newest first."""
    params = {"limit": str(limit)} | ({} if after is None else {"after": after})
    return Call("GET", "/v1/contexts", of(ContextList), params=params)


def contexts(service: ServiceProtocol) -> Giving[ContextInfo]:
    """Iterate over your own stored contexts, newest first."""
    after: str | None = None
    while True:
        page = yield from service.call(list_contexts(after, PAGE_CONTEXTS))
        for each in page.data:
            yield Give(each)
        after = page.next
        if not page.has_more or after is None:
            return
