"""Handlers as a task: what is known of an item without the handler's code."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import orjson

from corelane.domain.dispatch import LEAST_TOKENS
from corelane.errors import TooLarge
from corelane.tasks.handler.wire import HandlerItem, HandlerOptions, HandlerResult, forms_of
from corelane.tasks.task import Bounds, Parts, Task

#: Most bytes of a character.
MOST_CHAR_BYTES = 4

#: Characters of an item for one estimated token: a slice of several items holds 4 MiB at most.
CHARS_PER_TOKEN = 1024


class HandlerTask(Task):
    """Gives items to a Python class. An item is stored as the text of its JSON."""

    name = HandlerOptions.task
    version = 1
    item = HandlerItem
    options = HandlerOptions
    result = HandlerResult
    shares = None
    beside = (type(None),)
    nothing: Mapping[str, Any] = MappingProxyType({"output": None})
    example: Mapping[str, Any] = MappingProxyType({"text": "The room was clean and the staff were kind."})
    engine = "corelane.tasks.handler.engine.runner:HandlerRunner"

    def of_version(self, version: str, summary: Mapping[str, Any]) -> "HandlerTask":
        """Return the task with the forms of one version, if workers announced them."""
        if not (facts := summary.get("facts")):
            return self
        found = HandlerTask()
        found.item, found.options = forms_of(version, facts)
        found.example = facts.get("example") or found.example
        return found

    def parts(self, item: HandlerItem) -> Parts:
        """Return the item's JSON as its text, and None for what stands beside the text."""
        return None, item.text, None

    def fields(self, beside: Any, text: str | None, text_id: str | None) -> dict[str, Any]:  # noqa: ARG002
        """Return the fields of the item's JSON."""
        found: dict[str, Any] = orjson.loads(text or "{}")
        return found

    def tokens(self, beside: Any, text: str, options: Any) -> int:  # noqa: ARG002
        """Return an estimate by size, so that large items share no slice. The core that reads the item corrects it."""
        return max(LEAST_TOKENS, len(text) // CHARS_PER_TOKEN)

    def tokens_of(self, beside: Any, text_tokens: float, options: Any) -> int:  # noqa: ARG002
        """Return the least estimate, as items share no text."""
        return LEAST_TOKENS

    def columns(self, result: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of an output that is an object; any other as one cell."""
        output = result["output"]
        return dict(output) if isinstance(output, dict) else {"output": output} if output is not None else {}

    def check(self, bounds: Bounds, place: str, item: HandlerItem) -> None:
        """Raise TooLarge for an item whose JSON is too large."""
        own = item.most_bytes, "the handler's max_item_bytes"
        most, setting = min((bounds.max_item_bytes, "CORELANE_MAX_ITEM_BYTES"), own)
        if len(item.text) * MOST_CHAR_BYTES > most and (size := len(item.text.encode())) > most:
            raise TooLarge(
                f"{place}the item has {size:,} bytes as JSON, and at most {most:,} are taken ({setting}): send less, "
                "or name a file by its URL if the model takes one"
            )
