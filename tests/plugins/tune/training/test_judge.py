import pytest

from corelane.plugins.tune.fitting import Observation
from corelane.plugins.tune.training.evaluator import weigh


def outcome(margin: float, f1: float, answerable: bool = True) -> Observation:
    return Observation(margin, 0.0, f1 == 1, f1, answerable)


def test_the_threshold_gives_the_answers_that_are_worth_it() -> None:
    outcomes = [outcome(5, 1.0), outcome(4, 0.5), outcome(3, 0, False), outcome(2, 0.25), outcome(1, 0, False)]
    verdict = weigh(outcomes)
    assert verdict.f1 == pytest.approx(100 * (1.0 + 0.5 + 2) / 5)
    assert verdict.exact == pytest.approx(100 * 3 / 5)
    assert verdict.answerable_f1 == pytest.approx(100 * 1.75 / 3)
    assert verdict.no_answer_accuracy == 100
    assert verdict.threshold == -3.5
    # The service gives an answer whose margin is at least the threshold, negated.
    assert sum(-each.margin <= verdict.threshold for each in outcomes) == 2


def test_without_unanswerable_questions_every_one_is_answered() -> None:
    verdict = weigh([outcome(5, 1.0), outcome(-4, 0.0)])
    assert (verdict.f1, verdict.no_answer_accuracy, verdict.threshold) == (50.0, None, 4)


def test_where_no_answer_is_worth_it_none_is_given() -> None:
    verdict = weigh([outcome(5, 0.0, False), outcome(4, 0.3)])
    assert verdict.f1 == 50.0
    assert verdict.threshold < -5
