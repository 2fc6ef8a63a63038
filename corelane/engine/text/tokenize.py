"""From text to batches: tokenise, cut windows, fill arrays.

Questions and contexts are tokenised apart, without special tokens, and put together row by row: a context that several
questions share is tokenised once, and kept for those that come later; so are words.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from corelane.artifacts.manifest import TokenizerSpec
from corelane.domain.dispatch import PUBLIC
from corelane.domain.jobs import Options, Priority
from corelane.engine.backends.protocol import Batch
from corelane.engine.buckets import Bucket
from corelane.engine.text.cache import Context, Contexts
from corelane.engine.text.windows import Window, cut_windows
from corelane.engine.text.words import Words
from corelane.errors import QuestionTooLong, TooManyWindows

#: Why a query alone cannot be read.
Refused = QuestionTooLong | TooManyWindows


@dataclass(frozen=True, slots=True)
class Query:
    """One item, as the engine sees it; owners share batches, and so do the jobs of an owner.

    Of an owner's items those of the least ``priority`` are answered first.
    """

    question: str
    context: str
    options: Options = field(default_factory=Options)
    owner: str = PUBLIC
    priority: int = Priority.NORMAL.rank
    job: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """A query in tokens, cut into windows; ``context_at`` is where the context starts in each of its rows."""

    query: Query
    question: NDArray[np.int32]
    context: Context
    windows: list[Window]
    context_at: int


class Reader:
    """Turns queries into windows and windows into batches, for one model."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        spec: TokenizerSpec,
        max_length: int,
        cache_tokens: int = 0,
        max_windows: float = math.inf,
    ) -> None:
        """Contexts of up to ``cache_tokens`` in all are kept; a query of more than ``max_windows`` is refused."""
        self._words = Words(tokenizer)
        self._spec = spec
        self._max_length = max_length
        self._max_windows = max_windows
        self._contexts = Contexts(cache_tokens)
        self.contexts_hit = self.contexts_read = 0

    def keeps(self, text: str) -> bool:
        """Whether a context need not be tokenised."""
        return self._contexts.find(text) is not None

    def read(self, queries: Sequence[Query], known: Mapping[str, Context] | None = None) -> list[Reading | Refused]:
        """Tokenise and cut, in order; a query that cannot be read is refused alone.

        ``known`` are contexts that were tokenised elsewhere, by their text.
        """
        texts = list(dict.fromkeys(query.context for query in queries))
        kept = {text: context for text in texts if (context := self._contexts.find(text)) is not None}
        missing = [text for text in texts if text not in kept and not (known and text in known)]
        tokens = self._words.read([*(query.question for query in queries), *missing])
        fresh = dict(zip(missing, tokens[len(queries) :], strict=True)) | dict(known or {})
        for text, context in fresh.items():
            self._contexts.keep(text, context)
        self.contexts_hit += len(kept)
        self.contexts_read += len(fresh)
        contexts = kept | fresh
        return [
            self._read_one(query, question.ids, contexts[query.context])
            for query, question in zip(queries, tokens, strict=False)
        ]

    def _read_one(self, query: Query, question: NDArray[np.int32], context: Context) -> Reading | Refused:
        context_at = 1 + len(question) + self._spec.sep_count
        try:
            windows = cut_windows(
                len(question),
                len(context),
                max_length=self._max_length,
                specials=2 + self._spec.sep_count,
                doc_stride=query.options.doc_stride,
                most=self._max_windows,
            )
            return Reading(query, question, context, list(windows), context_at)
        except (QuestionTooLong, TooManyWindows) as error:
            return error

    def fill(self, bucket: Bucket, rows: Sequence[tuple[Reading, Window]], height: int) -> Batch:
        """The arrays of a batch; rows beyond ``rows`` hold padding with one visible token, so that none is NaN."""
        shape = (height, bucket.length)
        input_ids = np.full(shape, self._spec.pad_id, dtype=np.int64)
        attention_mask = np.zeros(shape, dtype=np.int64)
        token_type_ids = np.zeros(shape, dtype=np.int64)
        attention_mask[len(rows) :, 0] = 1
        for row, (reading, window) in enumerate(rows):
            question_end = 1 + len(reading.question)
            input_ids[row, 0] = self._spec.cls_id
            input_ids[row, 1:question_end] = reading.question
            input_ids[row, question_end : reading.context_at] = self._spec.sep_id
            input_ids[row, reading.context_at : window.length - 1] = reading.context.ids[window.start : window.end]
            input_ids[row, window.length - 1] = self._spec.sep_id
            attention_mask[row, : window.length] = 1
            if self._spec.uses_token_types:
                token_type_ids[row, reading.context_at : window.length] = 1
        return Batch(bucket, input_ids, attention_mask, token_type_ids)
