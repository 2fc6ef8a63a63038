"""Which spans become answers: as many as fit beside each other, each the best of those left."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from corelane.engine.task import Window
from corelane.engine.text.tokenize import TextTokens
from corelane.tasks.question_answering.engine.spans import SpanSource, choose_candidates
from corelane.tasks.question_answering.engine.task import QuestionQuery as Query
from corelane.tasks.question_answering.engine.task import TokenizedQuery, search_rows
from corelane.tasks.question_answering.options import AnswerOptions

#: [CLS], one token of question and two [SEP]; windows of eight tokens of context of which neighbours share three.
BEFORE, ROOM, STEP = 3, 8, 5
LENGTH = BEFORE + ROOM + 1


def spans_of(start: np.ndarray, end: np.ndarray, windows: list[Window], longest: int) -> list[tuple[float, int, int]]:
    """Every span of every window, by trying them all."""
    found = []
    for row, window in enumerate(windows):
        null = start[row, 0] + end[row, 0]
        for s in range(window.start, window.end):
            for e in range(s, min(s + longest, window.end)):
                at = BEFORE - window.start
                found.append((float(start[row, s + at] - null + end[row, e + at]), s, e + 1))
    return sorted(found, key=lambda span: (-span[0], span[1], span[2]))


@given(st.integers(1, 4), st.integers(1, 12), st.integers(1, 9), st.integers(0, 2**32 - 1))
def test_answers_are_the_best_of_all_spans_that_overlap_none_better(
    count: int, top_k: int, longest: int, seed: int
) -> None:
    windows = [Window(n * STEP, n * STEP + ROOM, LENGTH) for n in range(count)]
    tokens = windows[-1].end
    start, end = np.random.default_rng(seed).normal(0, 3, size=(2, count, LENGTH)).astype(np.float32)
    options = AnswerOptions(top_k=top_k, max_answer_tokens=longest)
    places = np.column_stack([np.arange(tokens), np.arange(1, tokens + 1)]).astype(np.int32)
    context = TextTokens(np.zeros(tokens, dtype=np.int32), places)
    item = TokenizedQuery(Query("?", "x", options), np.zeros(1, dtype=np.int32), context, windows, BEFORE)
    read = search_rows((start, end), [(item, window) for window in windows])
    sources = [SpanSource("x" * tokens, context, each.spans, each.window.start - BEFORE, None) for each in read]
    chosen = choose_candidates(sources, top_k)

    expected: list[tuple[float, int, int]] = []
    for span in spans_of(start, end, windows, longest):
        if len(expected) < top_k and all(span[2] <= other[1] or span[1] >= other[2] for other in expected):
            expected.append(span)
    assert [(c.start, c.end) for c in chosen] == [(s, e) for _, s, e in expected]
    np.testing.assert_allclose([c.margin for c in chosen], [margin for margin, _, _ in expected], atol=1e-4)
