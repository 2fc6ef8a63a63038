"""A service whose model is calibrated: workers take it up, the API lets precisions be asked for, scores compare."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from corelane.artifacts.calibration import Calibration, Curve, write_calibration
from corelane.artifacts.manifest import find_artifact
from corelane.domain.jobs import Item
from tests.integration.conftest import Fleet, end_fleet, start_fleet

PASSAGE = "The Eiffel Tower was completed in March 1889 and is 330 metres tall."
OTHER = "Otters, which had vanished from the valley by the 1970s, returned after the water became cleaner."


@pytest.fixture(scope="module")
def calibrated(built_in_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Start a service with the built-in model and curves as fitted on questions partly asked elsewhere."""
    folder = tmp_path_factory.mktemp("calibrated")
    artifacts = Path(shutil.copytree(built_in_data / "artifacts", folder / "artifacts"))
    artifact = find_artifact(artifacts, "qa-minilm", "cpu")
    calibration = Calibration(
        version=artifact.manifest.version,
        dtype=artifact.manifest.dtype,
        answerable=Curve(intercept=-1.3, slope=0.5),
        right=Curve(intercept=2.6, slope=2.0),
        no_answer_threshold=-2.0,
        file="made.json",
        file_digest="0" * 64,
        questions=800,
        created_at="2026-01-01T00:00:00Z",
    )
    write_calibration(artifact.path, calibration)
    fleet = start_fleet(folder, artifacts, "--cores", "1", "--no-flower")
    yield fleet
    end_fleet(fleet)


def test_model_says_that_it_is_calibrated(calibrated: Fleet) -> None:
    [model] = calibrated.api.get("/v1/models").json()["data"]
    assert (model["calibrated"], model["highest_precision"], model["no_answer_threshold"]) == (True, 0.93, -2.0)


def test_precision_decides_which_answers_are_given(calibrated: Fleet) -> None:
    with calibrated.client() as client:
        best = client.ask("When was the tower completed?", PASSAGE).answers[0]
        assert best.text == "March 1889"
        for asked, is_given in ((best.score - 0.01, True), (best.score + 0.01, False)):
            result = client.ask("When was the tower completed?", PASSAGE, min_precision=asked)
            assert (result.answer is not None) == is_given
            assert result.answers == [best]


def test_null_is_answered_by_the_threshold_of_the_calibration(calibrated: Fleet) -> None:
    with calibrated.client() as client:
        result = client.ask("When was the tower completed?", OTHER)
        assert client.ask("When was the tower completed?", PASSAGE).answer is not None
    assert result.answer is None
    assert result.no_answer_score is not None
    assert result.answers[0].score < result.no_answer_score


def test_the_better_of_two_passages_has_the_higher_score(calibrated: Fleet) -> None:
    items = [Item(question="When was the tower completed?", context=text) for text in (OTHER, PASSAGE)]
    with calibrated.client() as client:
        job = client.submit(items, wait_s=30)
        elsewhere, here = client.iter_results(job.id)
    assert here.answers[0].score > elsewhere.answers[0].score
