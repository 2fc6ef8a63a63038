"""Estimates what items cost, before anything is read with a tokenizer. Pure."""

from collections.abc import Mapping

from corelane.domain.dispatch import measure
from corelane.domain.jobs import Item, TaskOptions
from corelane.tasks.registry import task_named


class Estimator:
    """Estimates the items of one job. Each shared text is measured once."""

    def __init__(self, texts: Mapping[str, str], options: TaskOptions) -> None:
        self._shared = {text_id: measure(text) for text_id, text in texts.items()}
        self._options = options
        self._task = task_named(options.task)

    def tokens(self, item: Item) -> int:
        """Estimate an item, however its text is given."""
        beside, text, text_id = self._task.parts(item)
        if text is not None:
            return self._task.tokens(beside, text, self._options)
        return self._task.tokens_of(beside, self._shared[text_id or ""], self._options)
