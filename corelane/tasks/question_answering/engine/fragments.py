"""Fragments of a long item as bytes: windows for another core to read, and the spans it found in them. Pure.

A fragment holds token ids, so a document is tokenized only once. The numbers that return are bit for bit those that the
first core would have found: floats are sent as they are in memory.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import orjson
from numpy.typing import NDArray

from corelane.engine.task import Query
from corelane.engine.windows import Window
from corelane.tasks.question_answering.engine.spans import SpanLogits, WindowSpans
from corelane.tasks.question_answering.options import AnswerOptions

#: Types of token ids, of places, of the backends' floats, and of sums.
KINDS = ("<i4", "<i8", "<f4", "<f8")

Array = NDArray[Any]
Ints = NDArray[np.int32]


def pack_windows(query: Query, question: Ints, context: Ints, context_at: int, windows: Sequence[Window]) -> bytes:
    """Encode neighbouring windows of a query as bytes; ``context`` are all tokens of its context."""
    first, last = min(window.start for window in windows), max(window.end for window in windows)
    places = [(window.start - first, window.end - first, window.length) for window in windows]
    options = query.options
    facts = np.array([context_at, options.max_answer_tokens, options.top_k > 1], dtype="<i8")
    arrays = {"facts": facts, "question": question, "context": context[first:last], "windows": np.array(places)}
    return _pack(arrays)


def unpack_windows(payload: bytes, about: Query) -> tuple[Query, Ints, Ints, int, list[Window]]:
    """Decode a fragment that ``pack_windows`` made.

    Return a query, its question, its stretch of the context, where that begins in a row, and its windows. The query's
    owner, priority and job are those of ``about``. Raise ValueError for bytes that no Corelane process wrote.
    """
    arrays = _unpack(payload, "facts", "question", "context", "windows")
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
    return _pack(
        {
            "counts": np.array([len(spans.margins) for spans in found]),
            "starts": _join([spans.starts for spans in found], "<i8"),
            "ends": _join([spans.ends for spans in found], "<i8"),
            "margins": _join([spans.margins for spans in found], "<f4"),
            "masses": np.array([spans.mass for spans in found], dtype="<f8"),
            "logits": np.array(shape),
            "start_logits": _join([each.starts for each in kept], "<f4"),
            "end_logits": _join([each.ends for each in kept], "<f4"),
        }
    )


def unpack_spans(payload: bytes, windows: int) -> list[WindowSpans]:
    """Decode the spans of this many windows; raise ValueError for bytes that no Corelane process wrote."""
    names = ("counts", "starts", "ends", "margins", "masses", "logits", "start_logits", "end_logits")
    arrays = _unpack(payload, *names)
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


def _join(arrays: Sequence[Array], kind: str) -> Array:
    return np.concatenate(arrays).astype(kind, copy=False) if arrays else np.zeros(0, dtype=kind)


def _pack(arrays: Mapping[str, Array]) -> bytes:
    """Encode arrays as bytes: a line with their names, types and lengths, then their memory."""
    flat = {name: np.ascontiguousarray(array).ravel() for name, array in arrays.items()}
    head = {name: (array.dtype.str, len(array)) for name, array in flat.items()}
    return b"".join([orjson.dumps(head), b"\n", *(array.tobytes() for array in flat.values())])


def _unpack(payload: bytes, *names: str) -> dict[str, Array]:
    line, _, body = payload.partition(b"\n")
    head = orjson.loads(line)
    if not isinstance(head, dict) or set(head) != set(names):
        raise ValueError("a part has other arrays")
    arrays, at = {}, 0
    for name, (kind, length) in cast("dict[str, tuple[str, int]]", head).items():
        if kind not in KINDS or type(length) is not int or length < 0:
            raise ValueError("a part has an array of another kind")
        arrays[name] = np.frombuffer(body, kind, length, at)
        at += arrays[name].nbytes
    return arrays
