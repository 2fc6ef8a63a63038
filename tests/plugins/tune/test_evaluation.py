"""The one evaluation: each question's scores, and their means."""

from corelane.domain.jobs import Result
from corelane.domain.squad import Question
from corelane.plugins.tune.evaluation import means, score


def result_of(text: str | None, start: int = 0, **changes: object) -> Result:
    answer = None if text is None else {"text": text, "start": start, "end": start + len(text), "score": 0.5}
    answers = [answer] if answer else []
    return Result.model_validate({"index": 0, "status": "succeeded", "answer": answer, "answers": answers} | changes)


def test_an_unanswerable_question_is_right_without_an_answer() -> None:
    question = Question("q", "?", "Ada wrote it.", ())
    assert score(question, result_of(None)).exact == 1
    assert score(question, result_of("Ada")).exact == 0


def test_an_answer_that_is_not_at_its_offsets_is_found_among_all_candidates() -> None:
    question = Question("q", "?", "𝒳 Ada wrote it.", ("Ada",))
    assert score(question, result_of("Ada", 2)).offsets_wrong == 0
    astray = {"text": "wrote", "start": 7, "end": 12, "score": 0.1}
    outcome = score(question, result_of("Ada", 2, answers=[astray]))
    assert (outcome.offsets_given, outcome.offsets_wrong) == (2, 1)


def test_a_failed_item_scores_nothing_and_says_why() -> None:
    result = result_of(None, status="failed", error={"code": "worker_lost", "detail": "lost"})
    outcome = score(Question("q", "?", "c", ()), result)
    assert (outcome.exact, outcome.f1, outcome.failure) == (0, 0, "lost")


def test_a_summary_is_a_mean_in_percent() -> None:
    question = Question("q", "?", "Ada wrote it.", ("Ada",))
    scores = means([score(question, result_of("Ada")), score(question, result_of(None))])
    assert (scores.questions, scores.exact, scores.f1) == (2, 50, 50)
    assert means([]).questions == 0
