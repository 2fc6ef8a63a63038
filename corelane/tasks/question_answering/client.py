"""The client's calls for questions."""

from typing import Any

from corelane.client.protocol import ServiceProtocol
from corelane.client.steps import Exchange
from corelane.domain.jobs import Result


def ask(
    service: ServiceProtocol,
    /,
    question: str,
    context: str,
    *,
    model: str = "default",
    **options: Any,
) -> Exchange[Result]:
    """Ask one question about a passage, and wait for its answer without limit.

    ``options`` are the options of a job.
    """
    item = {"question": question, "context": context}
    return (yield from service.results_of([item], model=model, options=options))[0]
