"""Long texts, tokenized in chunks between batches, so that reading a document delays no small job.

A text is cut before a space or line end between words. If that changes how a tokenizer reads, which a sample shows, its
texts are read whole. Documents take turns. An owner's queries about one document share the reading. The ids read so
far can be used before the rest is read.
"""

import re
from collections import OrderedDict, deque
from collections.abc import Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from corelane.domain.dispatch import CHARS_PER_TOKEN
from corelane.engine.task import Query
from corelane.engine.text.tokenize import Passage, TextTokens

#: Characters of a chunk: some 5,000 tokens, which take about 10 ms. Texts up to this size are not long.
CHUNK_CHARS = 20_000

#: The white space at which a chunk may begin.
SEAM = re.compile(r"(?<=\S)[ \n](?=\w)")

#: Text that a tokenizer must read the same in chunks and whole. It has several scripts, marks, line ends, digits, two
#: spaces, a special token.
SAMPLE = (
    "Ada's e\u0301lan, the 1889 tower\nof 東京 was 3.5 x_y\there. A  [MASK] <mask> Straße\u3000and İzmir "
    "ﬁne\r\nend \u2019 a b"
)


def cut_text(text: str, size: int) -> Iterator[str]:
    """Cut a text into chunks of at least ``size`` characters, each ending at the first possible place."""
    start = 0
    while seam := SEAM.search(text, start + size):
        yield text[start : seam.start()]
        start = seam.start()
    yield text[start:]


def read_chunks(tokenizer: Tokenizer, chunks: Iterable[str]) -> TextTokens:
    """Tokenize a text given in chunks; return its tokens with their places in the whole text."""
    document = Document(deque(chunks))
    while document.chunks:
        document.read_on(tokenizer)
    return document.tokens_read()


def reads_in_chunks(tokenizer: Tokenizer) -> bool:
    """Return whether a tokenizer reads the sample in chunks as it reads it whole."""
    chunks, whole = (read_chunks(tokenizer, parts) for parts in (cut_text(SAMPLE, 1), [SAMPLE]))
    return np.array_equal(chunks.ids, whole.ids) and np.array_equal(chunks.places, whole.places)


@dataclass(slots=True)
class Document:
    """A long text that is being tokenized, and the queries about it."""

    chunks: deque[str]
    start: int = 0
    ids: list[NDArray[np.int32]] = field(default_factory=list)
    places: list[NDArray[np.int32]] = field(default_factory=list)
    queries: dict[Hashable, Query] = field(default_factory=dict)

    def read_on(self, tokenizer: Tokenizer) -> None:
        """Tokenize one chunk."""
        chunk = self.chunks.popleft()
        part = TextTokens.of(tokenizer.encode(chunk, add_special_tokens=False))
        self.ids.append(part.ids)
        self.places.append(part.places + np.int32(self.start))
        self.start += len(chunk)

    def tokens_read(self) -> TextTokens:
        """Return the tokens read so far."""
        return TextTokens(np.concatenate(self.ids), np.concatenate(self.places))


class ChunkReader:
    """Queries whose texts are not tokenized yet. Not thread-safe."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        #: Longer texts are read here; None if the tokenizer cannot read in chunks.
        self.short_chars = CHUNK_CHARS if reads_in_chunks(tokenizer) else None
        #: Documents by owner and text; the first one is next.
        self.documents: OrderedDict[Passage, Document] = OrderedDict()

    def add(self, key: Hashable, query: Query) -> None:
        """Add a query on a long text."""
        if query.passage not in self.documents:
            self.documents[query.passage] = Document(deque(cut_text(query.text, CHUNK_CHARS)))
        self.documents[query.passage].queries[key] = query

    def read_on(self) -> tuple[Passage, TextTokens, list[tuple[Hashable, Query]]] | None:
        """Tokenize one chunk of the next document. After the last chunk, return its passage, tokens and queries."""
        passage, document = self.documents.popitem(last=False)
        document.read_on(self._tokenizer)
        if not document.chunks:
            return passage, document.tokens_read(), list(document.queries.items())
        self.documents[passage] = document
        return None

    def drop(self, keys: Collection[Hashable]) -> None:
        """Drop queries, and documents without queries."""
        for passage, document in list(self.documents.items()):
            for key in document.queries.keys() & keys:
                del document.queries[key]
            if not document.queries:
                del self.documents[passage]

    def tokens(self, most_per_item: int) -> int:
        """Estimate the tokens of all queries here, counting at most ``most_per_item`` for each."""
        return sum(
            len(document.queries) * min(len(text) // CHARS_PER_TOKEN, most_per_item)
            for (_, text), document in self.documents.items()
        )
