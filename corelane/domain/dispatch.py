"""Names and rules of dispatch: cores and queues; costs of items; slices, their payloads, and refs. Pure.

A *slice* is a run of neighbouring items of one job. A *ref* is the short text in a lane that names a slice, or a single
item cut from it: ``job:owner:priority:payload:first:count:tokens:attempt``. Items are numbered by their index in the
job. ``payload`` is the first item of the stored slice; ``first`` is the first item of this slice, under which its
results are stored.

An item costs the tokens of all its windows, which are estimated without a tokenizer. The core that reads an item
corrects the estimate (``Dispatch.exchange``).

In a slice's payload an item is a row, ``[id, beside, text]``; what stands beside the text belongs to the task. A text
is stored once: a number refers to the texts that the job's items share, null to the text of the row before.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from string import ascii_letters, digits, whitespace
from typing import Any

import orjson

#: Most items in a slice, and most estimated tokens in a slice of several items. A core does these in some hundred
#: milliseconds, so a lost slice costs little, and Redis hands them out in a fraction of a millisecond.
SLICE_ITEMS, SLICE_TOKENS = 32, 4096

#: The name of the Celery task that rings a core.
DRAIN_TASK = "corelane.drain"

#: The owner of requests without an API key.
PUBLIC = "public"

#: Most items in a slice. The search for an item's result begins this far before the item.
MAX_SLICE_ITEMS = 128

#: Prefix of the Celery queues of cores; the queues that belong to no core.
QUEUE_PREFIX = "core."
KEEPER_QUEUE = "keeper"
DELIVERY_QUEUE = "deliveries"

#: A job of one slice with at most this many estimated tokens is small: it fits into one batch.
SMALL_TOKENS = 1024

#: A core that holds larger work takes this many tokens of small jobs at a time, about a batch of two short items.
#: It takes no more because another core may be free sooner.
BESIDE_TOKENS = 256

#: Small jobs get this many tokens for each token of larger jobs. So a stream of small jobs leaves these a ninth.
SMALL_WEIGHT = 8

#: One in this many claims of a core begins with the lowest priority, so that no priority starves.
LOW_TURN = 8

#: A ref of more items than this is forged: slices are much smaller.
MOST_REF_ITEMS = 1000

#: Most tokens that a ref is charged. The Lua library takes no number of more digits, and their sums are exact there.
MOST_REF_TOKENS = 10**12 - 1


@dataclass(frozen=True, slots=True)
class Core:
    """One accelerator core or CPU slot, named ``host/index``."""

    host: str
    index: int

    @classmethod
    def parse(cls, name: str) -> "Core":
        """Read a core's name; raise ValueError if it is not one."""
        host, _, index = name.rpartition("/")
        if not host or not index.isdigit():
            raise ValueError(f"{name!r} is not the name of a core; names look like host/0")
        return cls(host, int(index))

    def __str__(self) -> str:
        return f"{self.host}/{self.index}"

    @property
    def queue(self) -> str:
        """The Celery queue that only this core's worker reads."""
        return f"{QUEUE_PREFIX}{self.host}.{self.index}"

    @property
    def node(self) -> str:
        """The Celery node name of this core's worker, as Flower shows it."""
        return f"core{self.index}@{self.host}"


@dataclass(frozen=True, slots=True)
class Ref:
    """A slice, or a single item cut from one, waiting in a lane."""

    job: str
    owner: str
    priority: int
    payload: int
    first: int
    count: int
    tokens: int
    attempt: int = 1

    @classmethod
    def decode(cls, text: str) -> "Ref":
        """Parse a ref from a lane; raise ValueError for any other text."""
        job, owner, *numbers = text.split(":")
        if len(numbers) != 6:
            raise ValueError("a ref has eight parts")
        return cls(job, owner, *map(int, numbers))

    def encode(self) -> str:
        """Return the text that is written to a lane."""
        place = f"{self.payload}:{self.first}:{self.count}:{min(self.tokens, MOST_REF_TOKENS)}:{self.attempt}"
        return f"{self.job}:{self.owner}:{self.priority}:{place}"

    @property
    def line(self) -> str:
        """The name by which a core reports this line: the owner's larger jobs at this priority."""
        return f"{self.owner}:{self.priority}"

    @property
    def lane(self) -> str:
        """The name by which a core reports this lane: the owner's small jobs at this priority."""
        return f"{self.line}:small"

    @property
    def offset(self) -> int:
        """The place of its first item in the stored slice."""
        return self.first - self.payload

    @property
    def key(self) -> str:
        """The name of this slice of work in a claim."""
        return f"{self.job}:{self.first}"


#: English text has about four characters to a WordPiece token (measured on SQuAD: 4.3).
CHARS_PER_TOKEN = 4

#: Characters to a token in the text between punctuation marks. Each mark is a token.
WORD_CHARS_PER_TOKEN = 5

#: The least that an item costs, however short: a row of 64 tokens. The estimate does not depend on a model.
LEAST_TOKENS = 64

#: The tokens of a window of a long text, as estimated; of a passage that is asked about, its most by default.
WINDOW_TOKENS = 384

#: The special tokens in ``[CLS] beside [SEP] text [SEP]``.
SPECIAL_TOKENS = 3

#: A window must have at least this share of its tokens for the text, or the item is refused.
MIN_TEXT_SHARE = 1 / 4

#: Texts of up to this many characters fit one window. Most items of a flood are this short, and are estimated faster.
SHORT_CHARS = 256

#: Every byte of UTF-8 except ASCII punctuation.
NO_MARKS = f"{ascii_letters}{digits}{whitespace}".encode() + bytes(range(128, 256))


def measure(text: str) -> float:
    """Estimate the tokens of a text. Beyond ASCII, each byte of a character after the first adds half a token."""
    encoded = text.encode()
    chars = len(text)
    marks = len(encoded.translate(None, NO_MARKS))
    # The second value is greater if there are more marks than one in sixteen characters.
    tokens = chars / CHARS_PER_TOKEN if 16 * marks <= chars else marks + (chars - marks) / WORD_CHARS_PER_TOKEN
    return tokens + (len(encoded) - chars) / 2


def count_windows(text_tokens: float, room: float, stride: int) -> int:
    """Count the windows that cover a text, if each window has ``room`` for text and neighbours overlap."""
    if text_tokens <= room:
        return 1
    return 1 + math.ceil((text_tokens - room) / (room - overlap(room, stride)))


def overlap(room: float, stride: int) -> int:
    """Return how many tokens neighbouring windows share: the stride, but at most half a window."""
    return min(stride, int(room // 2))


def estimate(beside_tokens: float, text_tokens: float, stride: int, window: int = WINDOW_TOKENS) -> int:
    """Estimate the tokens of an item's windows; the result is at least ``LEAST_TOKENS``."""
    return max(LEAST_TOKENS, math.ceil(rows_tokens(text_tokens, 1, beside_tokens, beside_tokens, stride, window)))


def rows_tokens(
    text_tokens: float, rows: int, beside_tokens: float, longest: float, stride: int, window: int = WINDOW_TOKENS
) -> float:
    """Estimate the tokens of a text that is read once together with each of ``rows`` others, such as labels.

    The others have ``beside_tokens`` in all, the longest has ``longest``. Windows are cut for that one. The part of it
    that would leave no room for the text is not read, but it is tokenized, and counts once.
    """
    widest = SPECIAL_TOKENS + longest
    beside = min(widest, window * (1 - MIN_TEXT_SHARE))
    room = window - beside
    windows = count_windows(text_tokens, room, stride)
    repeated = (windows - 1) * overlap(room, stride)
    return (1 + (windows - 1) * beside / widest) * (rows * SPECIAL_TOKENS + beside_tokens) + rows * (
        text_tokens + repeated
    )


def estimate_tokens(beside: str, text: str, stride: int) -> int:
    """Estimate the tokens of an item from its texts."""
    if len(whole := beside + text) <= SHORT_CHARS:
        # All of it is one window.
        return max(LEAST_TOKENS, math.ceil(SPECIAL_TOKENS + measure(whole)))
    return estimate(measure(beside), measure(text), stride)


def cut_slices(tokens: Sequence[int], max_items: int, max_tokens: int) -> Iterator[tuple[int, int, int]]:
    """Cut a job's items into slices, as (first, count, tokens). A single item may exceed the bound on tokens."""
    first = total = 0
    for index, cost in enumerate(tokens):
        if index > first and (index - first >= max_items or total + cost > max_tokens):
            yield first, index - first, total
            first, total = index, 0
        total += cost
    if tokens:
        yield first, len(tokens) - first, total


def return_refs(ref: Ref) -> list[Ref]:
    """Cut a lapsed slice into single items for the lanes, so that an item that kills its core fails alone."""
    share = max(1, ref.tokens // ref.count)
    return [replace(ref, first=ref.first + i, count=1, tokens=share, attempt=ref.attempt + 1) for i in range(ref.count)]


def spread_slices(tokens: Sequence[int], max_items: int, max_tokens: int, idle: int) -> list[tuple[int, int, int]]:
    """Cut a job's items into slices for ``idle`` cores: about equal in tokens, and equally many for each core.

    A core gets at least a window's worth of tokens. Without idle cores slices are as large as allowed: see
    ``cut_slices``.
    """
    total = sum(tokens)
    takers = min(idle, total // WINDOW_TOKENS, len(tokens))
    if takers < 2:
        return list(cut_slices(tokens, max_items, max_tokens))
    each = math.ceil(max(total / max_tokens, len(tokens) / max_items) / takers)
    share = total / (takers * each)
    slices: list[tuple[int, int, int]] = []
    first = inside = before = 0
    for index, cost in enumerate(tokens):
        is_full = index - first >= max_items or inside + cost > max_tokens
        if index > first and (is_full or before + inside + cost / 2 > share * (len(slices) + 1)):
            slices.append((first, index - first, inside))
            before, first, inside = before + inside, index, 0
        inside += cost
    return [*slices, (first, len(tokens) - first, inside)]


#: One item: its id, its other fields, and its text, or the number of a text that several items of the job share.
Row = tuple[str | None, Any, str | int]


def encode_slice(rows: Iterable[Row]) -> bytes:
    """Encode rows for the store."""
    before: str | int | None = None
    stored = []
    for item_id, beside, text in rows:
        stored.append((item_id, beside, None if text == before else text))
        before = text
    return orjson.dumps(stored)


def decode_slice(payload: bytes) -> list[Row]:
    """Decode the rows of a slice; raise ValueError for a payload that no Corelane process wrote."""
    found = orjson.loads(payload)
    if not isinstance(found, list) or not all(isinstance(row, list) and len(row) == 3 for row in found):
        raise ValueError("a payload is not a list of rows")
    rows: list[Row] = []
    for item_id, beside, text in found:
        if text is None and rows:
            text = rows[-1][2]
        # type(): True is an int to isinstance().
        if type(item_id) not in (str, type(None)) or type(text) not in (str, int):
            raise ValueError("a row is not [id, beside, text]")
        rows.append((item_id, beside, text))
    return rows


def slice_ids(payload: bytes | None) -> Sequence[str | None]:
    """Return the callers' own ids of a slice's items; empty if the payload is gone or cannot be read."""
    try:
        return [row[0] for row in decode_slice(payload)] if payload else ()
    except ValueError:
        return ()
