"""Fragments of a long item as bytes: windows for another core to read, and the spans it found in them. Pure.

A fragment holds token ids, so a document is tokenized only once.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from corelane.engine.task import Query, Window
from corelane.engine.text.arrays import join, pack_arrays, unpack_arrays
from corelane.tasks.question_answering.engine.spans import SpanLogits, WindowSpans
from corelane.tasks.question_answering.options import AnswerOptions

Ints = NDArray[np.int32]


def pack_windows(query: Query, question: Ints, context: Ints, context_at: int, windows: Sequence[Window]) -> bytes:
    """Encode neighbouring windows of a query as bytes; ``context`` are all tokens of its context."""
    first, last = min(window.start for window in windows), max(window.end for window in windows)
    places = [(window.start - first, window.end - first, window.length) for window in windows]
    options = query.options
    facts = np.array([context_at, options.max_answer_tokens, options.top_k > 1], dtype="<i8")
    arrays = {"facts": facts, "question": question, "context": context[first:last], "windows": np.array(places)}
    return pack_arrays(arrays)


def unpack_windows(payload: bytes, about: Query) -> tuple[Query, Ints, Ints, int, list[Window]]:
    """Decode a fragment that ``pack_windows`` made.

    Return a query, its question, its stretch of the context, where that begins in a row, and its windows. The query's
    owner, priority and job are those of ``about``. Raise ValueError for bytes that no Corelane process wrote.
    """
    arrays = unpack_arrays(payload, "facts", "question", "context", "windows")
    context_at, max_answer_tokens, several = map(int, arrays["facts"])
    options = AnswerOptions(max_answer_tokens=max_answer_tokens, top_k=2 if several else 1)
    query = Query("", "", options, about.owner, about.priority, about.job)
    windows = [Window(*map(int, place)) for place in arrays["windows"].reshape(-1, 3)]
    question, context = arrays["question"], arrays["context"]
    if not windows or any(window.start > window.end or window.end > len(context) for window in windows):
        raise ValueError("a part has windows beyond its tokens")
    return query, question, context, context_at, windows


def pack_spans(found: Sequence[WindowSpans]) -> bytes:
    """Encode the spans of windows as bytes."""
    logits = [spans.logits for spans in found]
    kept = [each for each in logits if each is not None]
    shape = [(-1, 0, 0) if each is None else (len(each.starts), each.first, each.max_answer_tokens) for each in logits]
    return pack_arrays(
        {
            "counts": np.array([len(spans.margins) for spans in found]),
            "starts": join([spans.starts for spans in found], "<i8"),
            "ends": join([spans.ends for spans in found], "<i8"),
            "margins": join([spans.margins for spans in found], "<f4"),
            "masses": np.array([spans.mass for spans in found], dtype="<f8"),
            "logits": np.array(shape),
            "start_logits": join([each.starts for each in kept], "<f4"),
            "end_logits": join([each.ends for each in kept], "<f4"),
        }
    )


def unpack_spans(payload: bytes, windows: int) -> list[WindowSpans]:
    """Decode the spans of this many windows; raise ValueError for bytes that no Corelane process wrote."""
    names = ("counts", "starts", "ends", "margins", "masses", "logits", "start_logits", "end_logits")
    arrays = unpack_arrays(payload, *names)
    shapes = arrays["logits"].reshape(-1, 3).tolist()
    if not windows == len(arrays["counts"]) == len(arrays["masses"]) == len(shapes):
        raise ValueError("a part was answered for other windows")
    bounds = np.cumsum(arrays["counts"])[:-1]
    listed = [np.split(arrays[name], bounds) for name in ("starts", "ends", "margins")]
    lengths = np.array([max(0, length) for length, *_ in shapes])
    rows = [np.split(arrays[name], np.cumsum(lengths)[:-1]) for name in ("start_logits", "end_logits")]
    found = []
    for number, (length, first, most) in enumerate(shapes):
        logits = None if length < 0 else SpanLogits(rows[0][number], rows[1][number], first, most)
        starts, ends, margins = (parts[number] for parts in listed)
        found.append(WindowSpans(starts, ends, margins, float(arrays["masses"][number]), logits))
    return found
