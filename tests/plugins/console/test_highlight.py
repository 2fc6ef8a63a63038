"""A passage is cut where its answers are, by code points."""

from hypothesis import given
from hypothesis import strategies as st

from corelane.domain.jobs import Answer
from corelane.plugins.console.pages.highlight import Piece, cut
from corelane.plugins.console.pages.samples import SAMPLES


def answer(context: str, text: str) -> Answer:
    start = context.index(text)
    return Answer(text=text, start=start, end=start + len(text), score=0.5)


def test_answers_are_marked_by_rank() -> None:
    context = "The Inn, the Ilz and the Danube."
    pieces = cut(context, [answer(context, "Danube"), answer(context, "Inn")])
    assert pieces == [Piece("The "), Piece("Inn", 2), Piece(", the Ilz and the "), Piece("Danube", 1), Piece(".")]


def test_answer_that_is_not_there_is_left_unmarked() -> None:
    assert cut("short", [Answer(text="longer", start=2, end=8, score=1)]) == [Piece("short")]
    assert cut("short", [Answer(text="ort", start=1, end=4, score=1)]) == [Piece("short")]


@given(st.text(max_size=40), st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=6))
def test_pieces_are_the_passage_whatever_the_answers(context: str, spans: list[tuple[int, int]]) -> None:
    answers = [Answer(text=context[start:end], start=start, end=end, score=0) for start, end in spans]
    pieces = cut(context, answers)
    assert "".join(piece.text for piece in pieces) == context
    ranks = [piece.rank for piece in pieces if piece.rank]
    assert len(ranks) == len(set(ranks))


def test_samples_differ_and_are_valid() -> None:
    assert len({sample.name for sample in SAMPLES}) == len(SAMPLES) >= 6
    assert all(sample.question.strip() and sample.context.strip() for sample in SAMPLES)
