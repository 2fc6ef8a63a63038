"""The client's way to classify texts."""

from collections.abc import Sequence
from typing import Any, cast

from corelane.client.protocol import ServiceProtocol
from corelane.client.steps import Exchange
from corelane.tasks.text_classification.wire import LabelsResult


def classify(
    service: ServiceProtocol, texts: Sequence[str | tuple[str, str]], /, *, model: str, **options: Any
) -> Exchange[list[LabelsResult]]:
    """Classify a text, or a list of texts or of pairs of texts; wait for the labels without limit.

    A text gives one result, a list one for each text. ``options`` are the options of a job, such as ``top_k``.
    """
    items = [
        {"text": each} if isinstance(each, str) else dict(zip(("text", "text_pair"), each, strict=True))
        for each in texts
    ]
    return cast(list[LabelsResult], (yield from service.results_of(items, model=model, options=options)))
