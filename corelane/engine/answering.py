"""From logits to results: spans become characters of the caller's own string, windows are merged, null is
weighed. Pure.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from corelane.engine.backend import Logits
from corelane.engine.contexts import Context
from corelane.engine.reading import Query
from corelane.engine.spans import (
    CANDIDATES_PER_ANSWER,
    Candidate,
    WindowSpans,
    find_spans,
    merge_candidates,
    scores,
)
from corelane.engine.windows import Window
from corelane.jobs import JobStatus, Options

#: Joins the characters of one emoji; never the end of an answer.
ZERO_WIDTH_JOINER = "\u200d"


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
    groups: dict[tuple[int, int], list[int]] = {}
    for row, option in enumerate(options):
        groups.setdefault((option.max_answer_tokens, option.top_k * CANDIDATES_PER_ANSWER), []).append(row)
    found: list[ReadWindow | None] = [None] * len(windows)
    for (max_answer_tokens, keep), rows in groups.items():
        first = np.array([context_at[row] for row in rows])
        last = np.array([windows[row].length - 1 for row in rows])
        width = int(last.max())
        spans = find_spans(
            logits.start[rows, :width],
            logits.end[rows, :width],
            first,
            last,
            max_answer_tokens=max_answer_tokens,
            keep=keep,
        )
        for row, best in zip(rows, spans, strict=True):
            found[row] = ReadWindow(windows[row], context_at[row], best)
    return [window for window in found if window is not None]


def compose_result(
    query: Query, context: Context, windows: Sequence[ReadWindow], default_threshold: float
) -> dict[str, Any]:
    """The stored form of one item's result, less its index and id."""
    options = query.options
    spans = list({(c.start, c.end): c for c in sorted(_candidates(query, context, windows), key=_margin)}.values())
    best = merge_candidates(spans, options.top_k)
    shares, null_share = scores([c.margin for c in best], [w.spans.mass for w in windows])
    answers = [
        {"text": query.context[c.start : c.end], "start": c.start, "end": c.end, "score": round(share, 6)}
        for c, share in zip(best, shares, strict=True)
    ]
    threshold = default_threshold if options.no_answer_threshold is None else options.no_answer_threshold
    has_answer = bool(best) and (not options.no_answer or -best[0].margin <= threshold)
    return {
        "status": str(JobStatus.SUCCEEDED),
        "answer": answers[0] if has_answer else None,
        "answers": answers,
        "no_answer_score": round(null_share, 6),
        "windows": len(windows),
        "error": None,
    }


def _margin(candidate: Candidate) -> float:
    return candidate.margin


def _candidates(query: Query, context: Context, windows: Sequence[ReadWindow]) -> Iterator[Candidate]:
    for read in windows:
        shift = read.window.start - read.context_at
        for start, end, margin in zip(read.spans.starts, read.spans.ends, read.spans.margins, strict=True):
            chars = char_span(context, int(start) + shift, int(end) + shift)
            if chars is not None:
                yield Candidate(chars[0], whole_characters(query.context, chars[1]), float(margin))


def char_span(context: Context, first: int, last: int) -> tuple[int, int] | None:
    """Code points from the first to the end of the last token; None if they hold no text."""
    start, end = int(context.places[first, 0]), int(context.places[last, 1])
    return (start, end) if end > start else None


def whole_characters(text: str, end: int) -> int:
    """``end``, moved on past accents, joiners and variation selectors that belong to the character before it."""
    while end < len(text):
        if text[end] == ZERO_WIDTH_JOINER and end + 1 < len(text):
            end += 2
        elif unicodedata.category(text[end]) in ("Mn", "Mc", "Me"):
            end += 1
        else:
            break
    return end
