"""The client's way to get vectors."""

from collections.abc import Sequence
from typing import Any

from corelane.client.protocol import ServiceProtocol
from corelane.client.steps import Exchange
from corelane.domain.jobs import Result
from corelane.errors import ServiceError
from corelane.tasks.feature_extraction.wire import numbers_of


def embed(
    service: ServiceProtocol, texts: Sequence[str], /, *, model: str, **options: Any
) -> Exchange[list[list[float]]]:
    """Return the vector of a text, or of each of a list of texts; wait without limit.

    ``options`` are the options of a job, such as ``dimensions``. Vectors travel in base64 unless ``encoding`` says
    otherwise. Raises ServiceError for the first text that has no vector; to get the other texts' vectors, submit a job.
    """
    items = [{"text": text} for text in texts]
    found = yield from service.results_of(items, model=model, options={"encoding": "base64"} | options)
    return [vector_of(result) for result in found]


def vector_of(result: Result) -> list[float]:
    """Return the vector of a result, in whichever encoding; raise ServiceError if it has none."""
    if result.error is not None:
        detail = f"text {result.index}: {result.error.detail}"
        raise ServiceError(detail, status=200, problem_code=result.error.code)
    vector: list[float] | str | None = result.embedding
    if vector is None:
        raise ServiceError(f"text {result.index}: {result.status}", status=200, problem_code="gone")
    return numbers_of(vector).tolist() if isinstance(vector, str) else vector
