import pytest

from corelane.domain.squad import Question
from corelane.engine.question_answering.spans import Candidate
from corelane.plugins.tune.held_out import Seen
from corelane.plugins.tune.training.evaluator import score_spans

#: What the best span says, and gold answers of which it is all, two thirds by F1, or nothing.
SPAN, WHOLE, PARTLY, OTHER = "ada byron", ("ada byron",), ("ada",), ("red",)


def seen(margin: float, gold: tuple[str, ...] = ()) -> Seen:
    return Question("q", "who", SPAN, gold), Candidate(0, len(SPAN), margin, 0.0, margin)


def test_the_threshold_gives_the_answers_that_are_worth_it() -> None:
    spans = [seen(5, WHOLE), seen(4, PARTLY), seen(3), seen(2, OTHER), seen(1)]
    scores = score_spans(spans)
    assert scores.metrics.f1 == pytest.approx(100 * (1 + 2 / 3 + 2) / 5)
    assert scores.metrics.exact == pytest.approx(100 * 3 / 5)
    assert scores.as_data()["answerable_f1"] == pytest.approx(100 * (1 + 2 / 3) / 3)
    assert scores.metrics.no_answer_accuracy == 100
    assert scores.threshold == -3.5


def test_a_question_without_a_span_gets_no_answer() -> None:
    without = (Question("q", "who", "", WHOLE), None)
    assert score_spans([without]).metrics.f1 == 0
    assert score_spans([without, seen(1, WHOLE)]).metrics.f1 == 50
