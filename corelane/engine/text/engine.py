"""The engine of tasks that read texts with a model of Transformers: items to rows of tokens, rows to batches.

A text and what is beside it in a row (a query, a label) are tokenized separately, without special tokens. A text
that several items of an owner share is tokenized once, and cached. Long texts are read in chunks between batches.
"""

import math
from collections import OrderedDict, deque
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from corelane.artifacts.calibration import Calibration
from corelane.artifacts.manifest import Artifact, Template, TokenizerSpec
from corelane.domain.dispatch import CHARS_PER_TOKEN, MIN_TEXT_SHARE, count_windows, overlap
from corelane.engine.backends.protocol import Logits, WindowBatch
from corelane.engine.buckets import Bucket
from corelane.engine.task import UNLIMITED, Query, Ready, Result, RunnerLimits, RunnerWork, TaskEngine, Window, failure
from corelane.engine.text.chunks import CHUNK_CHARS, ChunkReader, Document, cut_text
from corelane.engine.text.tokenize import Passage, TextTokens, TokenCache, tokenize
from corelane.engine.text.tokenizer import open_tokenizer
from corelane.errors import CorelaneError, InvalidInput, TextTooLong, TooManyWindows

Tokens = NDArray[np.int32]

#: The tokens of a row's first and second part; the second is None if the first stands alone.
RowParts = tuple[Tokens, Tokens | None]

#: Marks a text that is alone in its row. Only this object does: another empty array means no tokens beside the text.
NO_TOKENS: Tokens = np.zeros(0, dtype=np.int32)


class RowShape:
    """The special tokens around the parts of a row, and the token types of all parts."""

    def __init__(self, template: Template) -> None:
        self.before, self.between, self.after = map(np.array, (template.before, template.between, template.after))
        self.specials = template.specials
        #: The token types of a row's parts, with the parts' numbers. Parts of type 0 are left out.
        self.types = [(part, np.array(types)) for part, types in enumerate(template.part_types()) if np.any(types)]


@dataclass(frozen=True, slots=True)
class TextPart:
    """A text in tokens, and the tokens of what stands beside it."""

    beside: Tokens
    text: TextTokens


@dataclass(frozen=True, slots=True)
class TokenizedText:
    """A query in tokens: a part for each text, with each thing that shares its rows. A window names its part."""

    query: Query
    parts: Sequence[TextPart]
    windows: list[Window]


@dataclass(slots=True)
class UnreadItem:
    """An item that is tokenized in steps. ``read`` has the tokens so far: of ``besides`` labels, then of the texts.

    Only tasks that run windows before the whole item is read fill ``parts`` and ``windows``.
    """

    query: Query
    besides: int
    steps: Iterator[list[TextTokens]]
    tokens_left: int
    read: list[TextTokens] = field(default_factory=list)
    parts: list[TextPart] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ReadRow:
    """A window, and what the model gave for its row."""

    window: Window
    values: tuple[NDArray[np.float32], ...]


class TextEngine(TaskEngine[Any]):
    """The base of the engines of tasks on texts. Not thread-safe."""

    #: Whether a text stands before what stands beside it.
    text_first: ClassVar[bool] = False
    #: Tokens that neighbouring windows of a long text share.
    overlap: ClassVar[int] = 0
    #: Whether the last step read an item of many texts, or of a text with much beside it.
    _reads_unread = False

    def __init__(
        self, tokenizer: Tokenizer, spec: TokenizerSpec, max_length: int, limits: RunnerLimits = UNLIMITED
    ) -> None:
        self.work = RunnerWork()
        self.read_for: Collection[Hashable] = ()
        self._tokenizer = tokenizer
        self._spec = spec
        self._pair, self._single = RowShape(spec.layout()), RowShape(spec.single_layout())
        self._template = template = spec.layout()
        #: The visible token of empty rows. It is not padding: some networks count the tokens that are not padding.
        self._filler = (*template.before, *template.between, *template.after, spec.pad_id)[0]
        self._max_length = max_length
        self._max_windows = limits.max_windows
        self._cache = TokenCache(limits.cache_tokens)
        self._long = ChunkReader(tokenizer)
        #: Items with many texts, or with much beside a text, which are tokenized in steps; the first one is next.
        self._unread: OrderedDict[Hashable, UnreadItem] = OrderedDict()

    @classmethod
    def open(cls, artifact: Artifact, limits: RunnerLimits, calibration: Calibration | None) -> Self:  # noqa: ARG003
        """Open the tokenizer of an artifact, and what else its task keeps there; raise ArtifactRefused."""
        manifest = artifact.manifest
        return cls(open_tokenizer(artifact), manifest.tokenizer, manifest.max_length, limits)

    def refusal(self, query: Query) -> CorelaneError | None:  # noqa: ARG002  # for tasks whose options a model refuses
        """Return why a query cannot be answered, before it is read; None if it can."""
        return None

    def besides(self, query: Query) -> Sequence[str]:
        """Return what stands beside the text, each of which makes rows of its own."""
        return () if query.beside is None else (query.beside,)

    def texts(self, query: Query) -> Sequence[str]:
        """Return the texts of a query."""
        return (query.text,)

    def tokenize(self, queries: Sequence[tuple[Hashable, Query]]) -> list[Ready[Any]]:
        """Tokenize queries. ``read_on`` reads long texts that are not cached, and long lists beside a text."""
        ready: list[Ready[Any]] = []
        at_once, short_chars = [], self._long.short_chars or math.inf
        for key, query in queries:
            if (refusal := self.refusal(query)) is not None:
                ready.append((key, failure(query, refusal)))
            elif (chars := self._chars(query)) > CHUNK_CHARS:
                self._put_off(key, query, chars)
            elif len(query.text) > short_chars and self._cache.find(query.passage) is None:
                self._long.add(key, query)
            else:
                at_once.append((key, query))
        return ready + self._tokenize(at_once) if at_once else ready

    def read_on(self) -> list[Ready[Any]]:
        """Tokenize one chunk of one long text, or a step of one item of many texts; return the queries completed."""
        # They take turns with single long texts.
        self._reads_unread = bool(self._unread) and not (self._reads_unread and self._long.documents)
        if self._reads_unread:
            return self._read_unread()
        self.read_for = next(iter(self._long.documents.values())).queries.keys() if self._long.documents else ()
        if not self.read_for or (read := self._long.read_on()) is None:
            return []
        passage, its_tokens, queries = read
        return self._tokenize(queries, {passage: its_tokens})

    def _put_off(self, key: Hashable, query: Query, chars: int) -> None:
        besides = self.besides(query)
        steps = self._steps(query.owner, [*besides, *self.texts(query)])
        self._unread[key] = UnreadItem(query, len(besides), steps, (chars + len(query.text)) // CHARS_PER_TOKEN)

    def _chars(self, query: Query) -> int:
        """Return how many characters a query has, not counting a single text."""
        return sum(map(len, self.besides(query)))

    def _read_unread(self) -> list[Ready[Any]]:
        """Tokenize a few more of the texts of one item; return the item if these were the last."""
        key, reading = self._unread.popitem(last=False)
        self.read_for = (key,)
        try:
            if (found := next(reading.steps, None)) is None:
                return [(key, self._all_of(reading))]
            reading.read += found
            reading.tokens_left -= sum(map(len, found))
            self._use_read_texts(reading)
        except InvalidInput as error:
            return [(key, failure(reading.query, error))]
        self._unread[key] = reading
        return []

    def _use_read_texts(self, reading: UnreadItem) -> None:
        """Use what was read of an item so far; raise InvalidInput if the item turns out to be unanswerable."""

    def _all_of(self, reading: UnreadItem) -> Any:
        """Return the tokenized item once all of its texts are read; raise InvalidInput."""
        besides = [each.ids for each in reading.read[: reading.besides]]
        return self.cut(reading.query, besides, reading.read[reading.besides :])

    def _steps(self, owner: str, texts: Sequence[str]) -> Iterator[list[TextTokens]]:
        """Yield the tokens of texts, in order, in steps of about one chunk of text."""
        some: list[str] = []
        chars = 0
        for text in texts:
            if len(text) > (self._long.short_chars or len(text)) and self._cache.find((owner, text)) is None:
                yield self._tokens(owner, some)
                some, chars, document = [], 0, Document(deque(cut_text(text, CHUNK_CHARS)))
                while document.chunks:
                    document.read_on(self._tokenizer)
                    yield []
                self.work.texts_read += 1
                self._cache.keep((owner, text), tokens := document.tokens_read())
                yield [tokens]
                continue
            some.append(text)
            chars += len(text)
            if chars > CHUNK_CHARS:
                yield self._tokens(owner, some)
                some, chars = [], 0
        yield self._tokens(owner, some)

    def _tokens(self, owner: str, texts: Sequence[str]) -> list[TextTokens]:
        """Return the tokens of texts, and cache them."""
        kept = {text: tokens for text in texts if (tokens := self._cache.find((owner, text))) is not None}
        missing = [text for text in dict.fromkeys(texts) if text not in kept]
        fresh = dict(zip(missing, tokenize(self._tokenizer, missing), strict=True))
        for text, tokens in fresh.items():
            self._cache.keep((owner, text), tokens)
        self.work.texts_hit += len(kept)
        self.work.texts_read += len(fresh)
        known = kept | fresh
        return [known[text] for text in texts]

    def tokenize_all(self, queries: Sequence[Query]) -> list[Any]:
        """Tokenize queries, with their long texts, in order; a query that cannot be answered gives its result."""
        ready = dict(self.tokenize(list(enumerate(queries))))
        while len(ready) < len(queries):
            ready.update(self.read_on())
        return [ready[number] for number in range(len(queries))]

    def unread_tokens(self, most_per_item: int) -> int:
        """Estimate the tokens still to be read in chunks, counting at most ``most_per_item`` for an item."""
        unread = self._long.tokens(most_per_item) if self._long.documents else 0
        return unread + sum(max(1, min(each.tokens_left, most_per_item)) for each in self._unread.values())

    def forget(self, keys: Collection[Hashable] | None = None) -> None:
        """Stop reading for these queries, or for all."""
        if keys is None:
            self._long.documents.clear()
            self._unread.clear()
            return
        if self._long.documents:
            self._long.drop(keys)
        for key in keys if self._unread else ():
            self._unread.pop(key, None)

    def _tokenize(
        self, queries: Sequence[tuple[Hashable, Query]], known: Mapping[Passage, TextTokens] | None = None
    ) -> list[Ready[Any]]:
        """Tokenize and cut queries, in order; ``known`` are texts that are tokenized already."""
        besides = [self.besides(query) for _, query in queries]
        texts_of = [[(query.owner, text) for text in self.texts(query)] for _, query in queries]
        passages = dict.fromkeys(chain.from_iterable(texts_of))
        kept = {passage: found for passage in passages if (found := self._cache.find(passage)) is not None}
        missing = [passage for passage in passages if passage not in kept and not (known and passage in known)]
        beside_texts = list(chain.from_iterable(besides))
        tokens = tokenize(self._tokenizer, [*beside_texts, *(text for _, text in missing)])
        fresh = dict(zip(missing, tokens[len(beside_texts) :], strict=True)) | dict(known or {})
        for passage, its_tokens in fresh.items():
            self._cache.keep(passage, its_tokens)
        self.work.texts_hit += len(kept)
        self.work.texts_read += len(fresh)
        known_tokens, given = kept | fresh, iter(tokens)
        ready: list[Ready[Any]] = []
        for (key, query), its_besides, its_texts in zip(queries, besides, texts_of, strict=True):
            beside = [next(given).ids for _ in its_besides]
            texts = [known_tokens[passage] for passage in its_texts]
            try:
                ready.append((key, self.cut(query, beside, texts)))
            except InvalidInput as error:
                ready.append((key, failure(query, error)))
        return ready

    def cut(self, query: Query, besides: Sequence[Tokens], texts: Sequence[TextTokens]) -> Any:
        """Cut a query into windows, for each pair of a text and an entry of ``besides``; raise InvalidInput."""
        parts = [TextPart(beside, text) for beside in besides or (NO_TOKENS,) for text in texts]
        windows = [window for number, part in enumerate(parts) for window in self._cut_part(query, number, part)]
        self._require_few(len(windows))
        return TokenizedText(query, parts, windows)

    def _require_few(self, windows: int) -> None:
        if windows > self._max_windows:
            raise TooManyWindows(
                f"the item takes {windows:,} windows, and {self._max_windows:,.0f} are read of one item: cut it "
                "into several, or have the operator raise CORELANE_MAX_WINDOWS"
            )

    def _cut_part(self, query: Query, number: int, part: TextPart) -> list[Window]:
        """Return the windows of a part; raise TextTooLong if the text must fit one and does not."""
        beside = self._single.specials if part.beside is NO_TOKENS else self._pair.specials + len(part.beside)
        text = len(part.text)
        if beside + text <= self._max_length:
            return [Window(0, text, beside + text, number)]
        room, remedy = self._max_length - beside, "shorten it, or cut it into several items"
        long = getattr(query.options, "long", "max")
        if (has_no_room := room < self._max_length * MIN_TEXT_SHARE) or long == "error":
            if has_no_room:
                remedy = f"{beside:,} of them are no part of the text, shorten what stands beside it"
            elif "long" in type(query.options).model_fields:
                remedy += ", or say with the option `long` that it is read in windows, or cut"
            remedy += "; a model that can read more is compiled for longer rows with `--buckets`"
            raise TextTooLong(
                f"the text has {beside + text:,} tokens with all that stands in its row, and this model reads "
                f"{self._max_length:,} at once; nothing is cut off unasked: {remedy}"
            )
        if long == "cut":
            return [Window(0, room, beside + room, number)]
        stride = self.overlap
        step = room - overlap(room, stride)
        starts = range(0, count_windows(text, room, stride) * step, step)
        stretches = [(start, min(start + room, text)) for start in starts]
        return [Window(start, end, beside + end - start, number) for start, end in stretches]

    def row(self, item: Any, window: Window) -> RowParts:
        """Return the tokens of a window's row."""
        part: TextPart = item.parts[window.part]
        text = part.text.ids[window.start : window.end]
        if part.beside is NO_TOKENS:
            return text, None
        return (text, part.beside) if self.text_first else (part.beside, text)

    def text_at(self, item: Any, window: Window) -> int:
        """Return where the text begins in a window's row."""
        part: TextPart = item.parts[window.part]
        if part.beside is NO_TOKENS:
            return len(self._single.before)
        beside = 0 if self.text_first else len(part.beside) + len(self._pair.between)
        return len(self._pair.before) + beside

    def fill(self, bucket: Bucket, rows: Sequence[tuple[Any, Window]], height: int) -> WindowBatch:
        """Return the arrays of a batch.

        Rows beyond ``rows`` are padding with one visible token, so that none is NaN.
        """
        shape = (height, bucket.length)
        input_ids = np.full(shape, self._spec.pad_id, dtype=np.int64)
        attention_mask = np.zeros(shape, dtype=np.int64)
        token_type_ids = np.zeros(shape, dtype=np.int64)
        attention_mask[len(rows) :, 0] = 1
        input_ids[len(rows) :, 0] = self._filler
        for row, (item, window) in enumerate(rows):
            first, second = self.row(item, window)
            around = self._single if second is None else self._pair
            begin, last = len(around.before), window.length - len(around.after)
            middle = begin + len(first)
            edges = (0, begin, middle, middle + len(around.between), last, window.length)
            input_ids[row, :begin] = around.before
            input_ids[row, begin:middle] = first
            if second is not None:
                input_ids[row, middle : edges[3]] = around.between
                input_ids[row, edges[3] : last] = second
            input_ids[row, last : edges[5]] = around.after
            attention_mask[row, : window.length] = 1
            for part, types in around.types:
                token_type_ids[row, edges[part] : edges[part + 1]] = types
        return WindowBatch(bucket, input_ids, attention_mask, token_type_ids)

    def decode(self, logits: Logits, rows: Sequence[tuple[Any, Window]]) -> list[Any]:
        """Return what the model gave for each row."""
        return [ReadRow(window, tuple(each[row].copy() for each in logits)) for row, (_, window) in enumerate(rows)]

    def compose(self, item: Any, decoded: Sequence[Any]) -> Result:
        """Return an item's result from its rows, in any order."""
        raise NotImplementedError


def in_order(rows: Sequence[ReadRow]) -> list[ReadRow]:
    """Return rows in the order of their item, whichever batch read them."""
    return sorted(rows, key=lambda read: (read.window.part, read.window.start))


def cut_off(item: TokenizedText) -> dict[str, int]:
    """Return the field of a result that says how many tokens of a text with one part were cut off, if any were."""
    cut = len(item.parts[0].text) - item.windows[-1].end
    return {"cut": cut} if cut else {}


class VectorEngine(TextEngine):
    """The base of the engines of tasks whose evidence is one vector per row."""

    def row_key(self, item: TokenizedText, window: Window) -> Hashable:
        """Return the tokens of a row if its item has several texts, or several things beside its text."""
        if len(item.parts) == 1:
            return window
        return tuple(None if each is None else each.tobytes() for each in self.row(item, window))
