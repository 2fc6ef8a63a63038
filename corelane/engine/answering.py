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

#: No character before it belongs to the one before.
FIRST_MARK = "\u0300"


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
    found: dict[int, ReadWindow] = {}
    for (max_answer_tokens, keep), rows in groups.items():
        picked = slice(len(rows)) if len(rows) == len(windows) else rows
        last = [windows[row].length - 1 for row in rows]
        width = max(last)
        spans = find_spans(
            logits.start[picked, :width],
            logits.end[picked, :width],
            np.array([context_at[row] for row in rows]),
            np.array(last),
            max_answer_tokens=max_answer_tokens,
            keep=keep,
        )
        for row, best in zip(rows, spans, strict=True):
            found[row] = ReadWindow(windows[row], context_at[row], best)
    return [found[row] for row in range(len(windows))]


def compose_result(
    query: Query, context: Context, windows: Sequence[ReadWindow], default_threshold: float
) -> dict[str, Any]:
    """The stored form of one item's result, less its index and id."""
    options = query.options
    best = merge_candidates(_candidates(query, context, windows), options.top_k)
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


def _candidates(query: Query, context: Context, windows: Sequence[ReadWindow]) -> Iterator[Candidate]:
    text = query.context
    for read in windows:
        shift = read.window.start - read.context_at
        starts = context.places[read.spans.starts + shift, 0].tolist()
        ends = context.places[read.spans.ends + shift, 1].tolist()
        for start, end, margin in zip(starts, ends, read.spans.margins.tolist(), strict=True):
            if end > start:
                yield Candidate(start, whole_characters(text, end), margin)


def whole_characters(text: str, end: int) -> int:
    """``end``, moved on past accents, joiners and variation selectors that belong to the character before it."""
    while end < len(text) and text[end] >= FIRST_MARK:
        if text[end] == ZERO_WIDTH_JOINER and end + 1 < len(text):
            end += 2
        elif unicodedata.category(text[end]) in ("Mn", "Mc", "Me"):
            end += 1
        else:
            break
    return end
