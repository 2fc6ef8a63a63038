"""The client's way to find entities."""

from collections.abc import Sequence
from typing import Any, cast

from corelane.client.protocol import ServiceProtocol
from corelane.client.steps import Exchange
from corelane.tasks.token_classification.wire import EntitiesResult


def entities(
    service: ServiceProtocol, texts: Sequence[str], /, *, model: str, **options: Any
) -> Exchange[list[EntitiesResult]]:
    """Find the entities in a text, or in each of a list of texts; wait without limit.

    A text gives one result, a list one for each text. ``options`` are the options of a job, such as ``aggregation``.
    """
    items = [{"text": text} for text in texts]
    return cast(list[EntitiesResult], (yield from service.results_of(items, model=model, options=options)))
