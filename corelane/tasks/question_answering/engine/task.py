"""Question answering as a task: questions and passages to rows of tokens, logits to answers in the caller's string.

Questions and contexts are tokenized separately, without special tokens, and put together row by row. A context that
several questions of an owner share is tokenized once, and cached. A candidate is ranked only by its own window,
calibrated or not: the best answer of a document is the best of its windows' answers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from corelane.artifacts.calibration import Calibration
from corelane.artifacts.manifest import Artifact
from corelane.domain.jobs import JobStatus
from corelane.engine.backends.protocol import Logits
from corelane.engine.task import Query, Result, RunnerLimits, Window
from corelane.engine.text.engine import RowParts, TextEngine, Tokens
from corelane.engine.text.offsets import convert_offsets
from corelane.engine.text.tokenize import TextTokens
from corelane.errors import CorelaneError, InvalidInput, NotCalibrated
from corelane.tasks.question_answering.engine.spans import (
    Candidate,
    SpanSource,
    WindowSpans,
    choose_candidates,
    find_spans,
    gives_answer,
    in_whole_words,
    scores,
)
from corelane.tasks.question_answering.engine.windows import cut_windows
from corelane.tasks.question_answering.options import AnswerOptions


@dataclass(frozen=True, slots=True)
class QuestionQuery(Query):
    """A question and its passage, with the default options unless others are given."""

    options: AnswerOptions = field(default_factory=AnswerOptions)


@dataclass(frozen=True, slots=True)
class TokenizedQuery:
    """A query in tokens, cut into windows; ``context_at`` is where the context starts in each of its rows.

    The logits of "no answer" are those of a row's first token, or of its last token with ``null_last``.
    """

    query: Query
    question: NDArray[np.int32]
    context: TextTokens
    windows: list[Window]
    context_at: int
    null_last: bool = False

    def ends_at(self, window: Window) -> int:
        """Return where a window's stretch of the context ends in its row."""
        return self.context_at + window.end - window.start


@dataclass(frozen=True, slots=True)
class ReadWindow:
    """A window, where its context starts in its row, and the spans found there."""

    window: Window
    context_at: int
    spans: WindowSpans


Row = tuple[TokenizedQuery, Window]

#: Decimals of a score in a result.
SCORE_DIGITS = 6

#: Why ``min_precision`` is refused where scores are not probabilities.
NO_PROBABILITIES = (
    "this version is not calibrated, so `min_precision` means nothing to it; leave it out, or calibrate the model"
)


class QuestionAnsweringTask(TextEngine):
    """Extractive question answering with one model. Not thread-safe."""

    #: The threshold for "no answer" if a query sets none.
    threshold: float = 0.0
    calibration: Calibration | None = None

    @classmethod
    def open(cls, artifact: Artifact, limits: RunnerLimits, calibration: Calibration | None) -> Self:
        """Open the tokenizer of an artifact, and its calibration."""
        opened = super().open(artifact, limits, calibration)
        opened.threshold, opened.calibration = artifact.threshold(calibration), calibration
        return opened

    def refusal(self, query: Query) -> CorelaneError | None:
        """Return why a query's ``min_precision`` cannot be met; None if it can."""
        if query.options.min_precision is not None and self.calibration is None:
            return NotCalibrated(NO_PROBABILITIES)
        return None

    def cut(self, query: Query, besides: Sequence[Tokens], texts: Sequence[TextTokens]) -> TokenizedQuery:
        """Cut a passage into windows that fit into a row with the question; raise InvalidInput."""
        options, most, bound = query.options, self._max_windows, "setting"
        question, context = besides[0][: options.max_question_len], texts[0]
        if options.truncation == "error":
            most, bound = 1, "truncation"
        elif options.max_windows is not None and options.max_windows <= most:
            most, bound = options.max_windows, "max_windows"
        windows = cut_windows(
            len(question),
            len(context.ids),
            max_length=self._longest(query),
            specials=self._pair.specials,
            doc_stride=options.doc_stride,
            most=most,
            bound=bound,
        )
        context_at = len(self._pair.before) + len(question) + len(self._pair.between)
        return TokenizedQuery(query, question, context, windows, context_at, self._template.null_last)

    def _longest(self, query: Query) -> int:
        """Return the tokens of a query's longest row; raise InvalidInput if the model cannot read that many."""
        longest: int = query.options.max_seq_len or self._max_length
        if longest > self._max_length:
            raise InvalidInput(
                f"`max_seq_len` is {longest:,}, and this model reads {self._max_length:,} tokens at most"
            )
        return longest

    def row(self, item: TokenizedQuery, window: Window) -> RowParts:
        """Return the tokens of a window's row."""
        return item.question, item.context.ids[window.start : window.end]

    def decode(self, logits: Logits, rows: Sequence[Row]) -> list[ReadWindow]:
        """Return the best spans of every row."""
        return search_rows(logits, rows)

    def compose(self, item: TokenizedQuery, decoded: Sequence[ReadWindow]) -> Result:
        """Return an item's answers from the spans of its windows."""
        # Windows run by length. Among equal candidates the earlier window wins.
        decoded = sorted(decoded, key=lambda read: read.window.start) if len(decoded) > 1 else decoded
        tokenizer = self._tokenizer if item.query.options.align_to_words else None
        return compose_result(item.query, item.context, decoded, self.threshold, self.calibration, tokenizer)


def search_rows(logits: Logits, rows: Sequence[Row]) -> list[ReadWindow]:
    """Search every row by its item's options; rows with the same options are searched together."""
    start, end = logits
    groups: dict[tuple[int, bool], list[int]] = {}
    for row, (item, _) in enumerate(rows):
        options = item.query.options
        groups.setdefault((options.max_answer_tokens, options.top_k > 1), []).append(row)
    found: dict[int, ReadWindow] = {}
    for (max_answer_tokens, several), numbers in groups.items():
        picked = slice(len(numbers)) if len(numbers) == len(rows) else numbers
        last = [item.ends_at(window) for item, window in (rows[row] for row in numbers)]
        null_at = [rows[row][1].length - 1 if rows[row][0].null_last else 0 for row in numbers]
        width = max(*last, *null_at) + 1
        spans = find_spans(
            start[picked, :width],
            end[picked, :width],
            np.array([rows[row][0].context_at for row in numbers]),
            np.array(last),
            max_answer_tokens=max_answer_tokens,
            with_logits=several,
            null_at=np.array(null_at),
        )
        for row, best in zip(numbers, spans, strict=True):
            item, window = rows[row]
            found[row] = ReadWindow(window, item.context_at, best)
    return [found[row] for row in range(len(rows))]


def compose_result(
    query: Query,
    context: TextTokens,
    windows: Sequence[ReadWindow],
    default_threshold: float,
    calibration: Calibration | None,
    words: Tokenizer | None = None,
) -> Result:
    """Return one item's result in stored form, without its index and id; answers are whole ``words``, if given."""
    options = query.options
    best = best_candidates(query, context, windows, calibration)
    best = best if words is None else in_whole_words(words, query.text, best)
    shares, null_share = _weigh(best, windows, calibration)
    # The best candidate is kept whatever its score. Others are dropped if their score is 0.
    best = best[: 1 + sum(round(share, SCORE_DIGITS) > 0 for share in shares[1:])]
    answers: list[Result] = [
        {"text": query.text[c.start : c.end], "start": c.start, "end": c.end, "score": round(share, SCORE_DIGITS)}
        for c, share in zip(best, shares, strict=False)
    ]
    if options.offsets:
        for answer, offsets in zip(answers, convert_offsets(query.text, best, options.offsets), strict=True):
            answer["offsets"] = offsets
    has_answer = bool(best) and gives_answer(options, best[0].margin, shares[0], default_threshold)
    return {
        "status": str(JobStatus.SUCCEEDED),
        "answer": answers[0] if has_answer else None,
        "answers": answers,
        "no_answer_score": round(null_share, SCORE_DIGITS),
        "windows": len(windows),
        "error": None,
    }


def best_candidates(
    query: Query, context: TextTokens, windows: Sequence[ReadWindow], calibration: Calibration | None
) -> list[Candidate]:
    """Return the ``top_k`` best candidates over all windows, best first; none overlaps a better one."""
    sources = [
        SpanSource(query.text, context, read.spans, read.window.start - read.context_at, calibration)
        for read in windows
    ]
    return choose_candidates(sources, query.options.top_k)


def _weigh(
    best: Sequence[Candidate], windows: Sequence[ReadWindow], calibration: Calibration | None
) -> tuple[list[float], float]:
    """Return each candidate's score and the null's; together at most 1."""
    if calibration is None:
        return scores([c.margin for c in best], [w.spans.mass for w in windows])
    margins = [float(w.spans.margins[0]) for w in windows if len(w.spans.margins)]
    null = calibration.no_answer_score(max(margins, default=-math.inf))
    left, shares = 1.0 - null, []
    for candidate in best:
        shares.append(max(0.0, min(math.exp(candidate.strength), left)))
        left -= shares[-1]
    return shares, null
