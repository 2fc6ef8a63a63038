"""The engine of tasks whose model gives one vector for a row: other cores may read rows of a long item.

A fragment holds the token ids of its rows. What returns are the vectors of these rows, bit for bit.
"""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from corelane.engine.task import Query, Window
from corelane.engine.text.arrays import join, pack_arrays, unpack_arrays
from corelane.engine.text.engine import NO_TOKENS, ReadRow, TextEngine, TextPart, TokenizedText
from corelane.engine.text.tokenize import NO_PLACES, TextTokens


def in_order(rows: Sequence[ReadRow]) -> list[ReadRow]:
    """Return rows in the order of their item, whichever batch or core read them."""
    return sorted(rows, key=lambda read: (read.window.part, read.window.start))


class VectorEngine(TextEngine):
    """The part that tasks share whose evidence is one vector a row."""

    makes_fragments = True

    def row_key(self, item: TokenizedText, window: Window) -> Hashable:
        """Return the tokens of a row if its item has several texts, or several things beside its text."""
        if len(item.parts) == 1:
            return window
        return tuple(None if each is None else each.tobytes() for each in self.row(item, window))

    def pack(self, item: TokenizedText, windows: Sequence[Window]) -> bytes:
        """Encode the rows of windows; what stands beside several texts travels once."""
        besides = {id(part.beside): part.beside for part in (item.parts[window.part] for window in windows)}
        numbers = {key: number for number, key in enumerate(besides)}
        rows = [(item.parts[window.part], window) for window in windows]
        return pack_arrays(
            {
                "besides": join(list(besides.values()), "<i4"),
                "beside_lengths": np.array([-1 if each is NO_TOKENS else len(each) for each in besides.values()]),
                "texts": join([part.text.ids[window.start : window.end] for part, window in rows], "<i4"),
                "rows": np.array([(numbers[id(part.beside)], window.end - window.start) for part, window in rows]),
            }
        )

    def unpack(self, fragment: bytes, about: Query) -> TokenizedText:
        """Decode rows to an item without text, one part a row."""
        arrays = unpack_arrays(fragment, "besides", "beside_lengths", "texts", "rows")
        lengths, rows = arrays["beside_lengths"], arrays["rows"].reshape(-1, 2)
        besides = [
            NO_TOKENS if length < 0 else ids
            for length, ids in zip(lengths, _split(arrays["besides"], np.maximum(lengths, 0)), strict=True)
        ]
        texts = _split(arrays["texts"], rows[:, 1])
        if not len(rows) or rows[:, 0].min() < 0 or rows[:, 0].max() >= len(besides):
            raise ValueError("a part has rows beside nothing that it names")
        parts = [TextPart(besides[at], TextTokens(ids, NO_PLACES)) for (at, _), ids in zip(rows, texts, strict=True)]
        windows = [
            Window(0, len(part.text), self._around(part) + len(part.text), number) for number, part in enumerate(parts)
        ]
        if any(window.length > self._max_length for window in windows):
            raise ValueError("a part has rows that are too long")
        return TokenizedText(about, parts, windows)

    def pack_found(self, decoded: Sequence[ReadRow]) -> bytes:
        """Encode the vectors of rows, in their order."""
        return pack_arrays({"vectors": np.stack([read.values[0] for read in in_order(decoded)])})

    def unpack_found(self, item: Any, windows: Sequence[Window], found: bytes) -> list[ReadRow]:  # noqa: ARG002
        """Decode the vectors that another core found in rows."""
        vectors = unpack_arrays(found, "vectors")["vectors"].reshape(len(windows), -1)
        if not vectors.size:
            raise ValueError("a part was answered with nothing")
        return [ReadRow(window, (vector,)) for window, vector in zip(windows, vectors, strict=True)]


def _split(array: Any, lengths: Any) -> list[Any]:
    """Cut an array into pieces of these lengths; raise ValueError if they do not make the whole."""
    if (lengths < 0).any() or lengths.sum() != len(array):
        raise ValueError("a part has pieces of other lengths")
    return np.split(array, np.cumsum(lengths)[:-1]) if len(lengths) else []
