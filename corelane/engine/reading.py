"""From text to batches: tokenise, cut windows, fill arrays.

Questions and contexts are tokenised apart, without special tokens, and put together row by row: a context that several
questions share is tokenised once per call. Character offsets stay inside the tokenizer until a span is known.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tokenizers import Encoding, Tokenizer

from corelane.artifacts import TokenizerSpec
from corelane.engine.backend import Batch, Ints
from corelane.engine.buckets import Bucket
from corelane.engine.windows import Window, cut_windows
from corelane.errors import QuestionTooLong
from corelane.jobs import Options


@dataclass(frozen=True, slots=True)
class Query:
    """One item, as the engine sees it."""

    question: str
    context: str
    options: Options = field(default_factory=Options)


@dataclass(frozen=True, slots=True)
class Reading:
    """A query in tokens, cut into windows; ``context_at`` is where the context starts in each of its rows."""

    query: Query
    question: Ints
    context: Ints
    encoding: Encoding
    windows: list[Window]
    context_at: int


class Reader:
    """Turns queries into windows and windows into batches, for one model."""

    def __init__(self, tokenizer: Tokenizer, spec: TokenizerSpec, max_length: int) -> None:
        self._tokenizer = tokenizer
        self._spec = spec
        self._max_length = max_length

    def read(self, queries: Sequence[Query]) -> list[Reading | QuestionTooLong]:
        """Tokenise and cut, in order; a question that is too long is refused alone."""
        questions = self._encode([query.question for query in queries])
        distinct = list(dict.fromkeys(query.context for query in queries))
        contexts = {
            context: (encoding, np.array(encoding.ids, dtype=np.int64))
            for context, encoding in zip(distinct, self._encode(distinct), strict=True)
        }
        return [
            self._read_one(query, np.array(question.ids, dtype=np.int64), *contexts[query.context])
            for query, question in zip(queries, questions, strict=True)
        ]

    def _read_one(self, query: Query, question: Ints, encoding: Encoding, context: Ints) -> Reading | QuestionTooLong:
        context_at = 1 + len(question) + self._spec.sep_count
        try:
            windows = cut_windows(
                len(question),
                len(context),
                max_length=self._max_length,
                specials=2 + self._spec.sep_count,
                doc_stride=query.options.doc_stride,
            )
            return Reading(query, question, context, encoding, list(windows), context_at)
        except QuestionTooLong as error:
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
            input_ids[row, reading.context_at : window.length - 1] = reading.context[window.start : window.end]
            input_ids[row, window.length - 1] = self._spec.sep_id
            attention_mask[row, : window.length] = 1
            if self._spec.uses_token_types:
                token_type_ids[row, reading.context_at : window.length] = 1
        return Batch(bucket, input_ids, attention_mask, token_type_ids)

    def _encode(self, texts: list[str]) -> list[Any]:
        return self._tokenizer.encode_batch(texts, add_special_tokens=False)
