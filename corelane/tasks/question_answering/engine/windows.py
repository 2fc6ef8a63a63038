"""Cuts a passage into windows, each of which fits the model together with the question. Pure."""

import math

from corelane.domain.dispatch import MIN_TEXT_SHARE, count_windows, overlap
from corelane.engine.task import Window
from corelane.errors import QuestionTooLong, TooManyWindows

#: Remedies for too many windows, by what limits them. A shorter passage or question helps in all cases.
REMEDIES = {
    "setting": "give a smaller `doc_stride`, or have the operator raise CORELANE_MAX_WINDOWS",
    "max_windows": "or raise `max_windows`",
    "truncation": "or leave `truncation` at `windows`",
}


def cut_windows(
    question_tokens: int,
    context_tokens: int,
    *,
    max_length: int,
    specials: int,
    doc_stride: int,
    most: float = math.inf,
    bound: str = "setting",
) -> list[Window]:
    """Cut a context into windows of ``[CLS] question [SEP] stretch [SEP]`` that cover all of it, in order.

    Neighbours overlap by ``doc_stride`` tokens, but at most by half a window, so that an answer near an edge is whole
    in one of them. A context without tokens (only control characters) has one empty window. Raises QuestionTooLong, or
    TooManyWindows beyond ``most``; ``bound`` says which of ``REMEDIES`` set that limit.
    """
    room = _room(question_tokens, max_length, specials)
    if context_tokens <= room:
        return [Window(0, context_tokens, specials + question_tokens + context_tokens)]
    count = count_windows(context_tokens, room, doc_stride)
    if count > most:
        raise TooManyWindows(
            f"the passage has {context_tokens:,} tokens, which take {count:,} windows of {room:,} beside this "
            f"question, and {most:,.0f} are read of one item: cut the passage into several items, shorten the "
            f"question, {REMEDIES[bound]}"
        )
    step = room - overlap(room, doc_stride)
    stretches = [(start, min(start + room, context_tokens)) for start in range(0, count * step, step)]
    return [Window(start, end, specials + question_tokens + end - start) for start, end in stretches]


def _room(question_tokens: int, max_length: int, specials: int) -> int:
    """Return how many tokens of context fit into a window with a question; raise QuestionTooLong if too few."""
    room = max_length - specials - question_tokens
    if room < max_length * MIN_TEXT_SHARE:
        limit = int(max_length * (1 - MIN_TEXT_SHARE)) - specials
        raise QuestionTooLong(
            f"the question has {question_tokens} tokens; this model's windows of {max_length} leave room for {limit}: "
            "shorten the question"
        )
    return room
