"""The client's way to classify texts by labels of the caller's own."""

from collections.abc import Sequence
from typing import Any, cast

from corelane.client.protocol import ServiceProtocol
from corelane.client.steps import Exchange
from corelane.tasks.text_classification.wire import LabelsResult


def zero_shot(
    service: ServiceProtocol, texts: Sequence[str], /, labels: Sequence[str], *, model: str, **options: Any
) -> Exchange[list[LabelsResult]]:
    """Say which of the labels fit a text, or each of a list of texts; wait without limit.

    A text gives one result, a list one for each text. ``options`` are the options of a job, such as ``multi_label``.
    """
    given = options | {"labels": list(labels)}
    items = [{"text": text} for text in texts]
    return cast(list[LabelsResult], (yield from service.results_of(items, model=model, options=given)))
