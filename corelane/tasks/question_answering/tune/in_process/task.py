"""The task of the pipeline: it cuts and answers texts like transformers' pipeline, in batches of the engine."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from corelane.engine.backends.protocol import Logits
from corelane.engine.task import Query, Ready, Result, Window, failure
from corelane.engine.text.tokenize import TextTokens
from corelane.errors import QuestionTooLong
from corelane.tasks.question_answering.engine.task import QuestionAnsweringTask, Row, TokenizedQuery
from corelane.tasks.question_answering.tune.in_process.inputs import Parameters
from corelane.tasks.question_answering.tune.in_process.scoring import (
    MORE,
    TIMES,
    Places,
    WindowLogits,
    merge_windows,
    score_window,
    word_places,
)

#: The default overlap of windows, in tokens; at most half of a row.
DOC_STRIDE = 128


@dataclass(frozen=True, slots=True)
class Ask(Query):
    """A question with the parameters of its call."""

    parameters: Parameters = field(default_factory=Parameters)


@dataclass(frozen=True, slots=True)
class TokenizedAsk(TokenizedQuery):
    """A tokenized question, and the characters of each token of its context."""

    places: Places = field(default_factory=lambda: np.zeros((0, 2), dtype=np.int32))


class PipelineTask(QuestionAnsweringTask):
    """Question answering with the windows and scores of transformers' pipeline. Not thread-safe."""

    def tokenize(self, queries: Sequence[tuple[Hashable, Query]]) -> list[Ready[TokenizedQuery]]:
        """Tokenize questions and contexts, whole."""
        ready: list[Ready[TokenizedQuery]] = []
        for key, query in queries:
            parameters = query.parameters if isinstance(query, Ask) else Parameters()
            texts = [query.beside, query.text]
            question, context = self._tokenizer.encode_batch(texts, add_special_tokens=False)
            ids = np.array(question.ids[: parameters.max_question_len], dtype=np.int32)
            tokens = TextTokens.of(context)
            places = word_places(context.word_ids, tokens.places) if parameters.align_to_words else tokens.places
            try:
                windows = self._windows(len(ids), len(tokens), parameters)
            except QuestionTooLong as error:
                ready.append((key, failure(query, error)))
                continue
            context_at = self._context_at(ids)
            null_last = self._template.null_last
            ready.append((key, TokenizedAsk(query, ids, tokens, windows, context_at, null_last, places)))
        return ready

    def _windows(self, question_tokens: int, context_tokens: int, parameters: Parameters) -> list[Window]:
        """Cut a context into rows that overlap by ``doc_stride`` tokens."""
        longest = parameters.max_seq_len or self._max_length
        stride = min(DOC_STRIDE, longest // 2) if parameters.doc_stride is None else parameters.doc_stride
        beside = self._template.specials + question_tokens
        room = longest - beside
        if room < 1:
            raise QuestionTooLong(
                f"the question has {question_tokens} tokens and leaves no room for its context in rows of {longest}: "
                "give `max_question_len`, or a longer `max_seq_len`"
            )
        step = room - min(stride, room - 1)
        starts = range(0, max(1, context_tokens - room + step), step)
        stretches = [(start, min(start + room, context_tokens)) for start in starts]
        return [Window(start, end, beside + end - start) for start, end in stretches]

    def decode(self, logits: Logits, rows: Sequence[Row]) -> list[Any]:
        """Return the logits of every window's context."""
        found = []
        for row, (item, window) in enumerate(rows):
            inside, null = slice(item.context_at, item.ends_at(window)), window.length - 1 if item.null_last else 0
            start, end = logits[0][row], logits[1][row]
            found.append(
                WindowLogits(
                    window.start, start[inside].copy(), end[inside].copy(), float(start[null]), float(end[null])
                )
            )
        return found

    def compose(self, item: TokenizedQuery, decoded: Sequence[Any]) -> Result:
        """Return the best answers over all windows; ``answers`` are triples of score, start and end."""
        parameters = item.query.parameters if isinstance(item.query, Ask) else Parameters()
        keep = TIMES * parameters.top_k + MORE if parameters.align_to_words else parameters.top_k
        windows = [
            score_window(window, parameters.max_answer_len, keep)
            for window in sorted(decoded, key=lambda window: window.first)
        ]
        places = item.places if isinstance(item, TokenizedAsk) else item.context.places
        null = parameters.handle_impossible_answer
        answers = merge_windows(item.query.text, windows, places, top_k=parameters.top_k, with_null=null)
        return {"answers": answers, "error": None}
