"""The rows of an epoch, and their order. Every choice depends only on the seed, the epoch and the example. No torch.

So a killed run resumes with the same rows, without a saved state of a random generator. Rows of about the same length
share a batch, which costs little padding. Batches are of few shapes: the matrix library keeps something for each shape
that it has seen.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from corelane.artifacts.manifest import TokenizerSpec
from corelane.engine.backends.protocol import WindowBatch
from corelane.engine.buckets import Bucket
from corelane.engine.task import Window
from corelane.engine.text.tokenize import TextTokens, tokenize
from corelane.errors import InvalidInput, ModelRefused
from corelane.tasks.question_answering.engine.task import QuestionAnsweringTask, QuestionQuery, TokenizedQuery
from corelane.tasks.question_answering.tune.training.examples import Example
from corelane.tasks.question_answering.tune.training.plan import TrainingOptions

#: Texts tokenized at a time.
TOKENIZED_AT_ONCE = 2048

#: Number of batches whose rows are sorted by length together. More cost less padding, but mix lengths less.
SORTED_TOGETHER = 64

#: A batch is as wide as its longest row, up to the next multiple of this.
WIDTHS = 16

#: Tokens of one pass through the network on a CPU, with padding; a step adds up several passes. A larger pass takes
#: more memory and is not faster.
PASS_TOKENS = 2048

#: Number of other passages of the article that are compared with the question.
LOOKED_AT = 8

#: A row's span: first and last token in the row.
Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class TokenizedExample:
    """An example in tokens: its answers are the first and last token of its context."""

    example: Example
    question: NDArray[np.int32]
    context: TextTokens
    answers: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a batch: the item, and the part of a passage that it reads. Another item's passage has no answer."""

    item: int
    passage: int
    start: int
    end: int
    length: int


@dataclass(frozen=True, slots=True)
class Filled:
    """A batch for the network, with the spans of each row. A row without spans has its answer at [CLS]."""

    batch: WindowBatch
    spans: list[list[Span]]
    context_at: NDArray[np.int64]
    last: NDArray[np.int64]


class Dataset:
    """The tokenized examples of files, with their shares of an epoch; if ``fixed``, each epoch has the same rows."""

    def __init__(
        self,
        files: Sequence[Sequence[Example]],
        shares: Sequence[float],
        tokenizer: Tokenizer,
        spec: TokenizerSpec,
        options: TrainingOptions,
        *,
        fixed: bool = False,
    ) -> None:
        self.options = options
        self._fixed = fixed
        self.items: list[TokenizedExample] = []
        self._shares = shares
        template = spec.layout()
        if template.null_last or not template.before:
            raise ModelRefused(
                "the model's rows have no first token to stand for no answer, as XLNet's and T5's: training needs one"
            )
        self._specials = template.specials
        self._around_question = len(template.before) + len(template.between)
        self._task = QuestionAnsweringTask(tokenizer, spec, options.max_length)
        self._bounds: list[tuple[int, int]] = []
        contexts: dict[str, TextTokens] = {}
        for file in files:
            first = len(self.items)
            self.items += tokenize_examples(file, tokenizer, contexts, options.max_length - self._specials)
            self._bounds.append((first, len(self.items)))
        self._passages = passages_by_group(self.items)
        if not self.items:
            raise InvalidInput("no question is short enough to be read with a passage")

    def epoch(self, number: int) -> list[list[Row]]:
        """Return the batches of an epoch, in order."""
        rng = np.random.default_rng((self.options.seed, 1, number))
        rows = [row for item in self._drawn(number) for row in self._rows_of(item, number)]
        rng.shuffle(rows)
        return list(make_batches(rows, self.options.batch_tokens, rng))

    def fill(self, rows: Sequence[Row]) -> Filled:
        """Return the arrays of some rows, and the places of their answers."""
        bucket = Bucket(length=width_of(rows, self.options.max_length), rows=len(rows))
        shown = [self._shown(row) for row in rows]
        batch = self._task.fill(bucket, shown, len(rows))
        spans = [
            self._spans_of(row, read.context_at) if row.passage == row.item else []
            for row, (read, _) in zip(rows, shown, strict=True)
        ]
        context_at = np.array([read.context_at for read, _ in shown], dtype=np.int64)
        last = np.array([read.context_at + row.end - row.start for row, (read, _) in zip(rows, shown, strict=True)])
        return Filled(batch, spans, context_at, last.astype(np.int64))

    def _shown(self, row: Row) -> tuple[TokenizedQuery, Window]:
        item, context = self.items[row.item], self.items[row.passage].context
        window = Window(row.start, row.end, row.length)
        query = QuestionQuery(item.example.question, "")
        return TokenizedQuery(query, item.question, context, [window], self._context_at(item)), window

    def _context_at(self, item: TokenizedExample) -> int:
        return self._around_question + len(item.question)

    def _spans_of(self, row: Row, context_at: int) -> list[Span]:
        shift = context_at - row.start
        answers = self.items[row.item].answers
        return [(first + shift, last + shift) for first, last in answers if row.start <= first and last < row.end]

    def _drawn(self, epoch: int) -> Iterator[int]:
        """Yield the items of an epoch: each file's share. Over the epochs each item of a file comes equally often."""
        for file, ((first, end), share) in enumerate(zip(self._bounds, self._shares, strict=True)):
            count = end - first
            if not count:
                continue
            order = first + np.random.default_rng((self.options.seed, 2, file)).permutation(count)
            begin, stop = round(epoch * share * count), round((epoch + 1) * share * count)
            yield from (int(order[at % count]) for at in range(begin, stop))

    def _rows_of(self, number: int, epoch: int) -> Iterator[Row]:
        """Yield an item's row. Some answerable items also yield a row with another passage of the article."""
        rng = np.random.default_rng((self.options.seed, 3, 0 if self._fixed else epoch, number))
        yield self._cut(number, number, rng)
        if self.items[number].answers and rng.random() < self.options.negatives:
            other = self._other_passage(number, rng)
            if other is not None:
                yield self._cut(number, other, rng)

    def _cut(self, number: int, passage: int, rng: np.random.Generator) -> Row:
        """Cut a passage to fit the row. The cut includes one of the answers, at a random place."""
        item, tokens = self.items[number], len(self.items[passage].context)
        beside = self._specials + len(item.question)
        room = min(tokens, self.options.max_length - beside)
        low, high = 0, tokens - room
        if passage == number and item.answers and high:
            first, last = item.answers[int(rng.integers(len(item.answers)))]
            low, high = max(0, last + 1 - room), min(first, high)
        start = int(rng.integers(low, high + 1)) if high > low else min(low, tokens - room)
        return Row(number, passage, start, start + room, beside + room)

    def _other_passage(self, number: int, rng: np.random.Generator) -> int | None:
        """Return an item with another passage of the article, most similar to the question and without its answer."""
        item = self.items[number]
        known = self._passages.get(item.example.title, ())
        if len(known) < 2:
            return None
        asked = set(item.question.tolist())
        best, most = None, -1
        for at in rng.integers(len(known), size=LOOKED_AT):
            other = self.items[known[int(at)]].example
            if other.context == item.example.context or any(text in other.context for text in item.example.gold):
                continue
            shared = len(asked & set(self.items[known[int(at)]].context.ids.tolist()))
            if shared > most:
                best, most = known[int(at)], shared
        return best


def tokenize_examples(
    examples: Sequence[Example], tokenizer: Tokenizer, contexts: dict[str, TextTokens], room: int
) -> Iterator[TokenizedExample]:
    """Yield tokenized examples that fit in a row; ``contexts`` stores the tokens of each passage once."""
    for at in range(0, len(examples), TOKENIZED_AT_ONCE):
        part = examples[at : at + TOKENIZED_AT_ONCE]
        missing = list(dict.fromkeys(each.context for each in part if each.context not in contexts))
        contexts.update(zip(missing, tokenize(tokenizer, missing), strict=True))
        questions = tokenize(tokenizer, [each.question for each in part])
        for example, question in zip(part, questions, strict=True):
            # All examples share one string of a passage, as the key in ``contexts``.
            context = contexts[example.context]
            answers = tuple(dict.fromkeys(token_span(context, *answer) for answer in example.answers))
            left = room - len(question)
            fitting = tuple(span for span in answers if span[1] - span[0] < left)
            if left >= room // 2 and len(context) and (fitting or not answers):
                yield TokenizedExample(example, question.ids, context, fitting)


def token_span(context: TextTokens, start: int, end: int) -> Span:
    """Return the first and last token that overlap the characters from ``start`` to ``end``."""
    first = int(np.searchsorted(context.places[:, 1], start, side="right"))
    last = int(np.searchsorted(context.places[:, 0], end, side="left")) - 1
    return min(first, len(context) - 1), max(min(first, len(context) - 1), last)


def passages_by_group(items: Sequence[TokenizedExample]) -> dict[str, list[int]]:
    """Return for each article one item of each of its passages."""
    first: dict[tuple[str, str], int] = {}
    for number, item in enumerate(items):
        first.setdefault((item.example.title, item.example.context), number)
    found = defaultdict(list)
    for (title, _), number in first.items():
        if title:
            found[title].append(number)
    return dict(found)


def make_batches(rows: Sequence[Row], batch_tokens: int, rng: np.random.Generator) -> Iterator[list[Row]]:
    """Yield batches of at most ``batch_tokens``, including padding, in random order; each row is in exactly one."""
    if not rows:
        return
    mean = sum(row.length for row in rows) / len(rows)
    together = max(1, round(SORTED_TOGETHER * batch_tokens / mean))
    batches: list[list[Row]] = []
    for at in range(0, len(rows), together):
        batches += split_sorted(sorted(rows[at : at + together], key=lambda row: -row.length), batch_tokens)
    order = rng.permutation(len(batches))
    yield from (batches[int(at)] for at in order)


def split_sorted(rows: Sequence[Row], batch_tokens: int) -> Iterator[list[Row]]:
    """Yield rows, the longest first, in padded batches of ``batch_tokens`` at most; full passes make few shapes."""
    at = 0
    while at < len(rows):
        width = width_of(rows[at : at + 1])
        most, in_pass = rows_of(width, batch_tokens), rows_of(width, PASS_TOKENS)
        more = most - most % in_pass if most > in_pass else most
        yield list(rows[at : at + more])
        at += more


def passes(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Yield the rows of a batch in the passes in which a CPU runs them."""
    most = rows_of(width_of(rows), PASS_TOKENS)
    for at in range(0, len(rows), most):
        yield list(rows[at : at + most])


def rows_of(width: int, tokens: int) -> int:
    """Return how many rows of a width fit in ``tokens``; at least one."""
    return max(1, tokens // width)


def width_of(rows: Sequence[Row], most: int | None = None) -> int:
    """Return the padded width of some rows, at most ``most``."""
    width = math.ceil(max(row.length for row in rows) / WIDTHS) * WIDTHS
    return width if most is None else min(width, most)
