"""Long contexts, tokenised piece by piece between batches, so that taking a document in holds up no question.

A text is cut before a space or line end between words; a tokenizer for which that makes a difference is found out by a
sample, and gets its texts whole. Documents take turns, and questions on the same one share it.
"""

import re
from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from tokenizers import Tokenizer

from corelane.domain.dispatch import CHARS_PER_TOKEN
from corelane.engine.text.cache import Context
from corelane.engine.text.tokenize import Query

#: Characters of a piece: some 5,000 tokens, which take about 10 ms. Shorter contexts are not long.
PIECE_CHARS = 20_000

#: The white space that a piece may begin with.
SEAM = re.compile(r"(?<=\S)[ \n](?=\w)")

#: What a tokenizer must read alike in pieces and whole: scripts, marks, line ends, digits, two spaces, a special token.
SAMPLE = (
    "Ada's e\u0301lan, the 1889 tower\nof 東京 was 3.5 x_y\there. A  [MASK] <mask> Straße\u3000and İzmir "
    "ﬁne\r\nend \u2019 a b"
)


def cut_text(text: str, size: int) -> Iterator[str]:
    """The text in pieces of at least ``size`` characters, as short as its seams allow."""
    start = 0
    while seam := SEAM.search(text, start + size):
        yield text[start : seam.start()]
        start = seam.start()
    yield text[start:]


def read_pieces(tokenizer: Tokenizer, pieces: Iterable[str]) -> Context:
    """The tokens of a text given in pieces, with their places in the whole."""
    reading = Document(deque(pieces))
    while reading.pieces:
        reading.read_on(tokenizer)
    return reading.context()


def reads_in_pieces(tokenizer: Tokenizer) -> bool:
    """Whether a tokenizer makes of the sample's pieces what it makes of the sample."""
    pieces, whole = (read_pieces(tokenizer, parts) for parts in (cut_text(SAMPLE, 1), [SAMPLE]))
    return np.array_equal(pieces.ids, whole.ids) and np.array_equal(pieces.places, whole.places)


@dataclass(slots=True)
class Document:
    """A text on its way to a context, and who asks about it."""

    pieces: deque[str]
    start: int = 0
    parts: list[Context] = field(default_factory=list)
    queries: dict[Hashable, Query] = field(default_factory=dict)

    def read_on(self, tokenizer: Tokenizer) -> None:
        """Tokenise one piece."""
        piece = self.pieces.popleft()
        part = Context.of(tokenizer.encode(piece, add_special_tokens=False))
        self.parts.append(Context(part.ids, part.places + np.int32(self.start)))
        self.start += len(piece)

    def context(self) -> Context:
        """What was read so far."""
        ids, places = [part.ids for part in self.parts], [part.places for part in self.parts]
        return Context(np.concatenate(ids), np.concatenate(places))


class Unread:
    """Queries whose contexts are not tokenised yet. Not thread-safe."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._can_cut = reads_in_pieces(tokenizer)
        self._documents: OrderedDict[str, Document] = OrderedDict()

    def takes(self, query: Query) -> bool:
        """Whether a query's context is long enough to be read here."""
        return self._can_cut and len(query.context) > PIECE_CHARS

    def add(self, key: Hashable, query: Query) -> None:
        """Take in a query that ``takes`` said yes to."""
        if query.context not in self._documents:
            self._documents[query.context] = Document(deque(cut_text(query.context, PIECE_CHARS)))
        self._documents[query.context].queries[key] = query

    def read_on(self) -> tuple[str, Context, list[tuple[Hashable, Query]]] | None:
        """Tokenise one piece of the document whose turn it is; its text, context and queries if that was the last."""
        if not self._documents:
            return None
        text, document = self._documents.popitem(last=False)
        document.read_on(self._tokenizer)
        if not document.pieces:
            return text, document.context(), list(document.queries.items())
        self._documents[text] = document
        return None

    def drop(self, keys: Iterable[Hashable]) -> None:
        """Forget queries, and documents that nobody asks about any more."""
        keys = set(keys)
        for text, document in list(self._documents.items()):
            for key in document.queries.keys() & keys:
                del document.queries[key]
            if not document.queries:
                del self._documents[text]

    def clear(self) -> None:
        """Forget everything."""
        self._documents.clear()

    def tokens(self, most_per_item: int) -> int:
        """About what waits here, an item counting for ``most_per_item`` at most."""
        return sum(
            len(document.queries) * min(len(text) // CHARS_PER_TOKEN, most_per_item)
            for text, document in self._documents.items()
        )
