"""Two versions compared: figures against obvious ones, limits, and answers kept in files."""

import math
from pathlib import Path

import pytest

from corelane.domain.jobs import DEFAULT_TASK, JobStatus
from corelane.errors import InvalidInput
from corelane.tasks.question_answering.quality.comparison import (
    GateLimits,
    changed,
    check,
    compare,
    difference,
)
from corelane.tasks.question_answering.quality.evaluation import Scored, score
from corelane.tasks.question_answering.quality.saved import read_answers, save_answers
from corelane.tasks.question_answering.squad import SquadQuestion
from corelane.tasks.question_answering.wire import Answer, AnswerResult
from corelane.tasks.results import failed_result

CONTEXT = "Ada wrote the first program."


def question(number: int, *gold: str, context: str = CONTEXT) -> SquadQuestion:
    return SquadQuestion(str(number), f"question {number}?", context, gold)


def result(text: str | None, score: float, no_answer: float, *, given: bool = True) -> AnswerResult:
    answers = []
    if text is not None:
        start = CONTEXT.find(text)
        answers = [Answer(text=text, start=start, end=start + len(text), score=score)]
    return AnswerResult(
        index=0,
        status=JobStatus.SUCCEEDED,
        answer=answers[0] if answers and given else None,
        answers=answers,
        no_answer_score=no_answer,
        windows=1,
    )


def readings(*found: tuple[SquadQuestion, AnswerResult]) -> list[Scored]:
    return [score(*each) for each in found]


def test_an_answer_that_is_not_at_its_offsets_is_found_among_all_candidates() -> None:
    astray = Answer(text="first", start=0, end=5, score=0.1)
    answered = result("Ada", 0.9, 0.1)
    outcome = score(question(1, "Ada"), answered.model_copy(update={"answers": [*answered.answers, astray]}))
    assert (outcome.offsets_given, outcome.offsets_wrong) == (2, 1)


def test_a_version_against_itself_differs_in_nothing() -> None:
    side = readings((question(1, "Ada"), result("Ada", 0.8, 0.1)), (question(2), result("Ada", 0.2, 0.7, given=False)))
    found = compare(side, side)
    assert (found.exact.by, found.f1.by, found.agreement) == (0, 0, 1)
    assert found.new == found.old
    assert all(each.holds for each in check(found, GateLimits(0, 0, 1)))
    assert changed(side, side) == []


def test_what_is_lost_and_won_is_counted_and_named() -> None:
    asked = [question(1, "Ada"), question(2, "first program"), question(3, "Ada")]
    old = readings(*zip(asked, [result(text, 0.9, 0.1) for text in ("Ada", "first program", "program")], strict=True))
    new = readings(*zip(asked, [result(text, 0.9, 0.1) for text in ("Ada", "program", "Ada")], strict=True))
    found = compare(new, old)
    assert found.exact.by == 0
    assert found.f1.by == pytest.approx(100 * (1 - 1 + 2 / 3) / 3)
    assert found.agreement == pytest.approx(1 / 3)
    assert [(each["change"], each["id"]) for each in changed(new, old)] == [("worse", "2"), ("better", "3")]


def test_f1_is_compared_where_both_refuse_as_many_unanswerable_questions() -> None:
    """A version that only moved its threshold is no better: by default it looks so, at the operating points not."""
    asked = [*(question(n, "Ada") for n in range(4)), *(question(n) for n in range(4, 9))]
    margins = [0.9, 0.6, 0.3, 0.0, -0.9, -0.5, -0.1, 0.2, 0.4]

    def side(threshold: float) -> list[Scored]:
        found = [result("Ada", 0.5 + m / 2, 0.5 - m / 2, given=m > threshold) for m in margins]
        return readings(*zip(asked, found, strict=True))

    strict, lenient = side(0.5), side(-1)
    found = compare(strict, lenient)
    assert found.exact.by == pytest.approx(100 * (2 + 5 - 4) / 9)
    assert [point.f1 for point in found.new.operating_points] == [100, 75]
    assert found.new.operating_points == found.old.operating_points
    assert (found.new.no_answer_accuracy, found.old.no_answer_accuracy) == (100, 0)


def test_a_failed_question_is_wrong_and_fails_the_gate() -> None:
    asked = question(1, "Ada")
    old, new = (
        readings((asked, result("Ada", 0.9, 0.1))),
        readings((asked, AnswerResult.model_validate(failed_result(DEFAULT_TASK, 0, None, "run_failed", "it broke")))),
    )
    found = compare(new, old)
    broken = {each.name for each in check(found, GateLimits()) if not each.holds}
    assert {"EM lost", "F1 lost", "more failed"} <= broken
    assert found.new.failed == 1


def test_limits_hold_up_to_their_value() -> None:
    asked = [question(n, "Ada") for n in range(100)]
    right, wrong = result("Ada", 0.9, 0.1), result("first", 0.9, 0.1)
    old = readings(*((each, right) for each in asked))
    new = readings(*((each, wrong if n == 0 else right) for n, each in enumerate(asked)))
    found = compare(new, old)
    assert {each.name: each.holds for each in check(found, GateLimits(max_drop=1))} == {
        "EM lost": True,
        "F1 lost": True,
        "ECE risen": True,
        "agreement": True,
        "more failed": True,
    }
    strict = check(found, GateLimits(max_drop=0.9, min_agreement=0.995))
    assert {each.name for each in strict if not each.holds} == {"EM lost", "F1 lost", "agreement"}


def test_questions_of_one_context_count_as_one_for_the_interval() -> None:
    values = [1.0, 0.0] * 50
    apart = difference([str(n) for n in range(100)], values)
    together = difference([str(n // 10) for n in range(100)], [1.0] * 50 + [0.0] * 50)
    assert apart.by == together.by == 0.5
    assert apart.high - apart.low < (together.high - together.low) / 2
    assert difference(["one"] * 3, [1, 2, 3]).high == math.inf


def test_answers_are_kept_and_read_again(tmp_path: Path) -> None:
    asked, answers = [question(1, "Ada"), question(2)], [result("Ada", 0.9, 0.1), result(None, 0, 0.9)]
    path = tmp_path / "answers.jsonl"
    save_answers(path, asked, answers, "words@1", {"no_answer": True})
    assert read_answers(path, asked, {"no_answer": True}) == ("words@1", answers)
    with pytest.raises(InvalidInput, match="other questions"):
        read_answers(path, asked[:1], {"no_answer": True})
    with pytest.raises(InvalidInput, match="other options"):
        read_answers(path, asked, {"no_answer": False})


@pytest.mark.parametrize("content", ["", "{}", "[1]\n", '{"schema": "corelane.answers/1"}\n{"index": -1}\n', "\xff"])
def test_a_file_that_is_no_saved_answers_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text(content)
    with pytest.raises(InvalidInput, match="corelane eval --save"):
        read_answers(path, [question(1)], {})
