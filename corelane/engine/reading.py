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
from corelane.engine.batching import Packed
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
    """Everything known of some queries before the model runs; ``refused`` maps a query's position to its error."""

    queries: Sequence[Query]
    questions: list[Ints]
    contexts: list[Ints]
    encodings: list[Encoding]
    windows: list[Window]
    refused: dict[int, QuestionTooLong]


class Reader:
    """Turns queries into windows and windows into batches, for one model."""

    def __init__(self, tokenizer: Tokenizer, spec: TokenizerSpec, max_length: int) -> None:
        self._tokenizer = tokenizer
        self._spec = spec
        self._max_length = max_length
        #: [CLS], the separators between question and context, and the last separator.
        self._specials = 2 + spec.sep_count

    def read(self, queries: Sequence[Query]) -> Reading:
        """Tokenise and cut; a question that is too long is refused alone."""
        question_encodings = self._encode([query.question for query in queries])
        distinct = {query.context: position for position, query in reversed(list(enumerate(queries)))}
        encoded = dict(zip(distinct, self._encode(list(distinct)), strict=True))
        ids = {context: np.array(encoding.ids, dtype=np.int64) for context, encoding in encoded.items()}
        questions = [np.array(encoding.ids, dtype=np.int64) for encoding in question_encodings]
        contexts = [ids[query.context] for query in queries]
        windows: list[Window] = []
        refused: dict[int, QuestionTooLong] = {}
        for item, query in enumerate(queries):
            try:
                windows += cut_windows(
                    item,
                    len(questions[item]),
                    len(contexts[item]),
                    max_length=self._max_length,
                    specials=self._specials,
                    doc_stride=query.options.doc_stride,
                )
            except QuestionTooLong as error:
                refused[item] = error
        return Reading(queries, questions, contexts, [encoded[q.context] for q in queries], windows, refused)

    def fill(self, reading: Reading, packed: Packed, rows: int) -> Batch:
        """The arrays of a batch; rows beyond its windows hold padding with one visible token, so that no row is NaN."""
        shape = (rows, packed.bucket.length)
        input_ids = np.full(shape, self._spec.pad_id, dtype=np.int64)
        attention_mask = np.zeros(shape, dtype=np.int64)
        token_type_ids = np.zeros(shape, dtype=np.int64)
        attention_mask[len(packed.windows) :, 0] = 1
        for row, position in enumerate(packed.windows):
            window = reading.windows[position]
            context_at = self.context_offset(reading, window)
            question = reading.questions[window.item]
            input_ids[row, 0] = self._spec.cls_id
            input_ids[row, 1 : 1 + len(question)] = question
            input_ids[row, 1 + len(question) : context_at] = self._spec.sep_id
            input_ids[row, context_at : window.length - 1] = reading.contexts[window.item][window.start : window.end]
            input_ids[row, window.length - 1] = self._spec.sep_id
            attention_mask[row, : window.length] = 1
            if self._spec.uses_token_types:
                token_type_ids[row, context_at : window.length] = 1
        return Batch(packed.bucket, input_ids, attention_mask, token_type_ids)

    def context_offset(self, reading: Reading, window: Window) -> int:
        """Where the context starts in a window's row."""
        return 1 + len(reading.questions[window.item]) + self._spec.sep_count

    def _encode(self, texts: list[str]) -> list[Any]:
        return self._tokenizer.encode_batch(texts, add_special_tokens=False)
