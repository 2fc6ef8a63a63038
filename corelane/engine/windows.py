"""Windows: the stretches of an item's text that are read as one row each. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Window:
    """Tokens ``start`` to ``end`` (exclusive) of a text; ``length`` counts all tokens of the row.

    ``part`` is the number of the text, of items that have several or are read several times.
    """

    start: int
    end: int
    length: int
    part: int = 0
