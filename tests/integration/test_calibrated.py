"""The built-in model is calibrated: workers take that up, the API lets precisions be asked for, scores compare."""

import json

from corelane.artifacts.calibration import SHIPPED_NAME
from corelane.tasks.question_answering.wire import Question
from tests.tools.artifacts import ROOT
from tests.tools.fleet import Fleet

PASSAGE = "The Eiffel Tower was completed in March 1889 and is 330 metres tall."
OTHER = "Otters, which had vanished from the valley by the 1970s, returned after the water became cleaner."


def test_model_says_that_it_is_calibrated(fleet: Fleet) -> None:
    shipped = json.loads((ROOT / "models" / "qa-minilm" / SHIPPED_NAME).read_text())
    [model] = fleet.api.get("/v1/models").json()["data"]
    assert (model["calibrated"], model["no_answer_threshold"]) == (True, shipped["no_answer_threshold"])
    assert 0.5 < model["highest_precision"] < 1


def test_precision_decides_which_answers_are_given(fleet: Fleet) -> None:
    with fleet.client() as client:
        best = client.ask("When was the tower completed?", PASSAGE).answers[0]
        assert best.text == "March 1889"
        for asked, is_given in ((best.score - 0.01, True), (best.score + 0.01, False)):
            result = client.ask("When was the tower completed?", PASSAGE, min_precision=asked)
            assert (result.answer is not None) == is_given
            assert result.answers == [best]


def test_null_is_answered_by_the_threshold_of_the_calibration(fleet: Fleet) -> None:
    with fleet.client() as client:
        result = client.ask("When was the tower completed?", OTHER)
        assert client.ask("When was the tower completed?", PASSAGE).answer is not None
    assert result.answer is None
    assert result.no_answer_score is not None
    assert result.answers[0].score < result.no_answer_score


def test_the_better_of_two_passages_has_the_higher_score(fleet: Fleet) -> None:
    items = [Question(question="When was the tower completed?", context=text) for text in (OTHER, PASSAGE)]
    with fleet.client() as client:
        job = client.submit(items, wait_s=30)
        elsewhere, here = client.iter_results(job.id)
    assert here.answers[0].score > elsewhere.answers[0].score
