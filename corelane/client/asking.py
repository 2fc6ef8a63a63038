"""One question and its answer, whatever happens between: the whole of what many callers want."""

from typing import Any

from corelane.client import endpoints
from corelane.client.endpoints import LONGEST_POLL_S
from corelane.client.protocol import Exchange, ServiceProtocol
from corelane.domain.jobs import Result


def ask(
    self: ServiceProtocol,
    /,
    question: str,
    context: str | None = None,
    *,
    context_id: str | None = None,
    model: str = "default",
    **options: Any,
) -> Exchange[Result]:
    """Ask one question about a passage, or a stored one, and wait for its answer without limit.

    ``options`` are those of a job.
    """
    given = {"question": question, "context": context, "context_id": context_id}
    items = [{name: part for name, part in given.items() if part is not None}]
    job = yield from self.submit(items, wait_s=LONGEST_POLL_S, model=model, options=options)
    if not job.status.is_final:
        job = yield from self.wait(job.id)
    found = job.results
    if not found:
        found = (yield from self.call(endpoints.results(job.id, None))).data
    if not found:
        raise self.not_corelane(f"{job.id} has one item but no result")
    return found[0]
