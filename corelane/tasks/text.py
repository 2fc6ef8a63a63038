"""What tasks whose items have a text share: how long a text may be, windows of long texts, and estimates of tokens."""

from typing import Any, ClassVar, Literal

from pydantic import BaseModel, Field

from corelane.domain.dispatch import estimate, estimate_tokens, measure
from corelane.domain.jobs import UNLESS_NULL, Item, Text
from corelane.errors import TooLarge
from corelane.tasks.task import Bounds, Parts, Task

#: A unit of offsets in addition to code points: UTF-16 code units, as JavaScript and Java count, or bytes of UTF-8.
OffsetUnit = Literal["utf16", "bytes"]


class Offsets(BaseModel):
    """The same stretch of a text in other units, each as [start, end]; only those that were asked for are there."""

    utf16: tuple[int, int] | None = Field(
        None, **UNLESS_NULL, description="UTF-16 code units: `text.slice(start, end)` in JavaScript."
    )
    bytes: tuple[int, int] | None = Field(None, **UNLESS_NULL, description="Bytes of the text in UTF-8.")


def check_text(bounds: Bounds, place: str, name: str, text: str) -> None:
    """Raise TooLarge for a text that is too long; ``place`` and ``name`` begin the sentence."""
    most, setting = bounds.text_chars
    if len(text) > most:
        raise _too_long(place + name, most, f"cut it into several, or have the operator raise {setting}")


def check_beside(bounds: Bounds, place: str, name: str, text: str) -> None:
    """Raise TooLarge for what stands beside a text, such as a query, if it is too long."""
    most, setting = bounds.beside_chars
    if len(text) > most:
        raise _too_long(place + name, most, f"shorten it, or have the operator raise {setting}")


def _too_long(place: str, most: int, remedy: str) -> TooLarge:
    return TooLarge(f"{place} is longer than {most:,} characters: {remedy}")


#: The field of a result that says what the option `long: "cut"` cut off.
CUT = Field(None, ge=1, **UNLESS_NULL, description="Tokens at the text's end that were cut off, as `long` asked.")


class TextItem(Item):
    """One text."""

    text: Text = Field(description="The text, of any length where no option forbids it.")


class TextTask(Task):
    """A task whose items are one text, perhaps with a second text or labels."""

    version = 1
    shares = None
    beside: tuple[type, ...] = (type(None),)

    #: Tokens that neighbouring windows of a long text share.
    overlap: ClassVar[int] = 32

    def parts(self, item: Any) -> Parts:
        """Return the text, and None for what stands beside it."""
        return None, item.text, None

    def fields(self, beside: Any, text: str | None, text_id: str | None) -> dict[str, Any]:  # noqa: ARG002
        """Return the field of the text."""
        return {"text": text}

    def tokens(self, beside: Any, text: str, options: Any) -> int:  # noqa: ARG002  # for tasks with several rows
        """Estimate the tokens of the windows of a text."""
        return estimate_tokens(beside or "", text, self.overlap)

    def tokens_of(self, beside: Any, text_tokens: float, options: Any) -> int:  # noqa: ARG002
        """Estimate as ``tokens`` does, from the text's estimated tokens instead of the text."""
        return estimate(measure(beside or ""), text_tokens, self.overlap)

    def check(self, bounds: Bounds, place: str, item: Any) -> None:
        """Raise TooLarge for a text that is too long."""
        check_text(bounds, place, "the text", item.text)
