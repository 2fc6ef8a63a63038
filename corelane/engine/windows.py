"""Windows: the stretches of an item's context that are read as one row each. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Window:
    """Context tokens ``start`` to ``end`` (exclusive) of an item; ``length`` counts all tokens of the row."""

    start: int
    end: int
    length: int
