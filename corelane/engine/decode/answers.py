"""From logits to results: spans become characters of the caller's own string, windows are merged, null is
weighed. Pure.

What a candidate is ranked by comes from its own window alone, with a calibration and without: the best answer of a
document is the best of the answers of its windows.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from corelane.artifacts.calibration import Calibration
from corelane.domain.jobs import JobStatus, Options
from corelane.engine.backends.protocol import Logits
from corelane.engine.decode.candidates import Candidate, SpanSource, choose_candidates
from corelane.engine.decode.offsets import convert_offsets
from corelane.engine.decode.spans import WindowSpans, find_spans, scores
from corelane.engine.text.cache import Context
from corelane.engine.text.tokenize import Query
from corelane.engine.text.windows import Window
from corelane.errors import CorelaneError


@dataclass(frozen=True, slots=True)
class ReadWindow:
    """A window, where its context starts in its row, and the spans found there."""

    window: Window
    context_at: int
    spans: WindowSpans


def search_rows(
    logits: Logits, windows: Sequence[Window], context_at: Sequence[int], options: Sequence[Options]
) -> list[ReadWindow]:
    """Search every row of a batch by its own item's options; rows that share them are searched together."""
    groups: dict[tuple[int, bool], list[int]] = {}
    for row, option in enumerate(options):
        groups.setdefault((option.max_answer_tokens, option.top_k > 1), []).append(row)
    found: dict[int, ReadWindow] = {}
    for (max_answer_tokens, several), rows in groups.items():
        picked = slice(len(rows)) if len(rows) == len(windows) else rows
        last = [windows[row].length - 1 for row in rows]
        width = max(last)
        spans = find_spans(
            logits.start[picked, :width],
            logits.end[picked, :width],
            np.array([context_at[row] for row in rows]),
            np.array(last),
            max_answer_tokens=max_answer_tokens,
            with_logits=several,
        )
        for row, best in zip(rows, spans, strict=True):
            found[row] = ReadWindow(windows[row], context_at[row], best)
    return [found[row] for row in range(len(windows))]


def compose_result(
    query: Query,
    context: Context,
    windows: Sequence[ReadWindow],
    default_threshold: float,
    calibration: Calibration | None = None,
) -> dict[str, Any]:
    """The stored form of one item's result, less its index and id."""
    options = query.options
    best = best_candidates(query, context, windows, calibration)
    shares, null_share = _weigh(best, windows, calibration)
    answers: list[dict[str, Any]] = [
        {"text": query.context[c.start : c.end], "start": c.start, "end": c.end, "score": round(share, 6)}
        for c, share in zip(best, shares, strict=True)
    ]
    if options.offsets:
        for answer, offsets in zip(answers, convert_offsets(query.context, best, options.offsets), strict=True):
            answer["offsets"] = offsets
    likelier = None if calibration is None or not best else shares[0] >= null_share
    has_answer = bool(best) and gives_answer(options, best[0].margin, shares[0], default_threshold, likelier)
    return {
        "status": str(JobStatus.SUCCEEDED),
        "answer": answers[0] if has_answer else None,
        "answers": answers,
        "no_answer_score": round(null_share, 6),
        "windows": len(windows),
        "error": None,
    }


def gives_answer(
    options: Options, margin: float, score: float, default_threshold: float, likelier: bool | None
) -> bool:
    """Whether the best candidate is given as the answer: by what the job asks for, else, where scores are calibrated,
    if it is ``likelier`` to be right than the null, else by the model's own threshold.
    """
    if not options.no_answer:
        return True
    if options.min_precision is not None:
        return score >= options.min_precision
    if options.no_answer_threshold is None and likelier is not None:
        return likelier
    threshold = default_threshold if options.no_answer_threshold is None else options.no_answer_threshold
    return -margin <= threshold


def best_candidates(
    query: Query, context: Context, windows: Sequence[ReadWindow], calibration: Calibration | None
) -> list[Candidate]:
    """The ``top_k`` best candidates over all windows, best first; none overlaps a better one."""
    sources = (
        SpanSource(query.context, context, read.spans, read.window.start - read.context_at, calibration)
        for read in windows
    )
    return choose_candidates(sources, query.options.top_k)


def _weigh(
    best: Sequence[Candidate], windows: Sequence[ReadWindow], calibration: Calibration | None
) -> tuple[list[float], float]:
    """Each candidate's score and the null's; together at most 1."""
    if calibration is None:
        return scores([c.margin for c in best], [w.spans.mass for w in windows])
    margins = [float(w.spans.margins[0]) for w in windows if len(w.spans.margins)]
    null = calibration.no_answer_score(max(margins, default=-math.inf))
    left, shares = 1.0 - null, []
    for candidate in best:
        shares.append(max(0.0, min(math.exp(candidate.strength), left)))
        left -= shares[-1]
    return shares, null


def compose_failure(error: CorelaneError) -> dict[str, Any]:
    """Return the result of a query that could not be answered, in stored form."""
    return {
        "status": str(JobStatus.FAILED),
        "answer": None,
        "answers": [],
        "no_answer_score": None,
        "windows": 0,
        "error": {"code": error.code, "detail": error.detail},
    }
