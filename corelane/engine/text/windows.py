"""Cutting a long context into windows that fit the model, and none of it lost. Pure.

A window is ``[CLS] question [SEP] context stretch [SEP]``. Neighbouring windows overlap by ``doc_stride`` tokens, so
that an answer near an edge is seen whole in one of them.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from corelane.domain.dispatch import MIN_CONTEXT_SHARE, count_windows, overlap
from corelane.errors import QuestionTooLong, TooManyWindows


@dataclass(frozen=True, slots=True)
class Window:
    """Context tokens ``start`` to ``end`` (exclusive) of an item; ``length`` counts all tokens of the row."""

    start: int
    end: int
    length: int


def context_room(question_tokens: int, max_length: int, specials: int) -> int:
    """Context tokens that fit beside a question; raises QuestionTooLong if they are too few."""
    room = max_length - specials - question_tokens
    if room < max_length * MIN_CONTEXT_SHARE:
        limit = int(max_length * (1 - MIN_CONTEXT_SHARE)) - specials
        raise QuestionTooLong(
            f"the question has {question_tokens} tokens; this model's windows of {max_length} leave room for {limit}: "
            "shorten the question"
        )
    return room


def cut_windows(
    question_tokens: int,
    context_tokens: int,
    *,
    max_length: int,
    specials: int,
    doc_stride: int,
    most: float = math.inf,
) -> Iterator[Window]:
    """Windows that together cover every context token, in order; a stride of more than half a window is cut to half.

    A context without tokens (control characters only) still yields one, empty window. Raises QuestionTooLong, or
    TooManyWindows beyond ``most``.
    """
    room = context_room(question_tokens, max_length, specials)
    count = count_windows(context_tokens, room, doc_stride)
    if count > most:
        raise TooManyWindows(
            f"the passage has {context_tokens:,} tokens, which take {count:,} windows beside this question, and "
            f"{most:,.0f} are read of one item: cut the passage into several items, shorten the question, give a "
            "smaller `doc_stride`, or have the operator raise CORELANE_MAX_WINDOWS"
        )
    step = room - overlap(room, doc_stride)
    start = 0
    while True:
        end = min(start + room, context_tokens)
        yield Window(start, end, specials + question_tokens + end - start)
        if end >= context_tokens:
            return
        start += step
