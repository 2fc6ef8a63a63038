"""What the engines share whose model gives one vector for a row."""

from collections.abc import Hashable, Sequence

from corelane.engine.task import Window
from corelane.engine.text.engine import ReadRow, TextEngine, TokenizedText


def in_order(rows: Sequence[ReadRow]) -> list[ReadRow]:
    """Return rows in the order of their item, whichever batch read them."""
    return sorted(rows, key=lambda read: (read.window.part, read.window.start))


class VectorEngine(TextEngine):
    """The part that tasks share whose evidence is one vector a row."""

    def row_key(self, item: TokenizedText, window: Window) -> Hashable:
        """Return the tokens of a row if its item has several texts, or several things beside its text."""
        if len(item.parts) == 1:
            return window
        return tuple(None if each is None else each.tobytes() for each in self.row(item, window))
