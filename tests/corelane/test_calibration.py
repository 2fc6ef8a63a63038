"""Calibration: the fit, the file, and what scores mean with it."""

import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.artifacts.calibration import CALIBRATION_NAME, Calibration, Curve, read_calibration, write_calibration
from corelane.artifacts.manifest import Artifact, check_files, read_artifact
from corelane.cli.calibrate import cross_validate
from corelane.domain.jobs import Options
from corelane.engine.calibrating.fitting import Observation, check_kinds, fit_curves
from corelane.engine.question_answering.spans import WindowSpans, gives_answer
from corelane.engine.question_answering.task import ReadWindow, compose_result
from corelane.engine.runner import Runner
from corelane.engine.task import Query
from corelane.engine.text.tokenize import Context
from corelane.engine.windows import Window
from corelane.errors import ArtifactRefused, InvalidInput, SetupError
from tests.artifacts_for_tests import CALIBRATION
from tests.fakes import FixedBackend

TOKENS = 12


def draw_observations(count: int, seed: int) -> list[Observation]:
    """Outcomes drawn by known curves: what a fit should find again."""
    rng = np.random.default_rng(seed)
    margins, shares = rng.normal(5, 6, count), -rng.exponential(0.8, count)
    answerable = rng.random(count) < 1 / (1 + np.exp(1.3 - 0.2 * margins))
    right = answerable & (rng.random(count) < 1 / (1 + np.exp(-2.5 - 2.0 * shares)))
    rows = zip(margins.tolist(), shares.tolist(), right.tolist(), answerable.tolist(), strict=True)
    return [Observation(*row) for row in rows]


def calibrated_copy(artifact: Artifact, folder: Path) -> Artifact:
    shutil.copytree(artifact.path, folder)
    write_calibration(folder, CALIBRATION.model_copy(update={"version": artifact.manifest.version}))
    return read_artifact(folder)


def test_fit_finds_the_curves_that_outcomes_were_drawn_by() -> None:
    answerable, right = fit_curves(draw_observations(20_000, seed=1))
    assert (answerable.intercept, answerable.slope) == pytest.approx((-1.3, 0.2), abs=0.1)
    assert (right.intercept, right.slope) == pytest.approx((2.5, 2.0), abs=0.2)
    assert fit_curves(draw_observations(20_000, seed=1)) == (answerable, right)


def test_outcomes_that_a_feature_separates_still_give_a_finite_curve() -> None:
    rows = [Observation(float(n), -abs(n - 70) / 50, right=n > 60, answerable=n > 40) for n in range(100)]
    for curve in fit_curves(rows):
        assert math.isfinite(curve.intercept)
        assert 0 < curve.slope < 100


@pytest.mark.parametrize(
    ("kind", "keep"),
    [
        ("unanswerable questions", lambda each: each.answerable),
        ("right answers", lambda each: not each.right),
        ("wrong answers", lambda each: each.right or not each.answerable),
        ("answerable questions", lambda each: not each.answerable),
    ],
)
def test_file_without_enough_of_a_kind_is_refused(kind: str, keep: Any) -> None:
    rows = draw_observations(2_000, seed=2)
    check_kinds(rows)
    with pytest.raises(InvalidInput, match=kind):
        check_kinds([each for each in rows if keep(each)])


def test_margins_that_mean_the_opposite_are_refused() -> None:
    upside_down = [
        Observation(-each.margin, each.log_share, each.right, each.answerable) for each in draw_observations(2_000, 3)
    ]
    with pytest.raises(InvalidInput, match="margins do not tell"):
        fit_curves(upside_down)


@pytest.mark.parametrize("contexts", [["one"], ["answerable", "not"]])
def test_file_of_which_no_part_can_be_judged_by_the_rest_says_so(contexts: list[str]) -> None:
    rows = sorted(draw_observations(500, seed=4), key=lambda each: not each.answerable)
    seen = [(contexts[0] if each.answerable else contexts[-1], each) for each in rows]
    fit_curves(rows)
    with pytest.raises(InvalidInput, match="all outcomes are equal"):
        list(cross_validate(seen))


def test_log_chance_is_right_far_from_the_middle() -> None:
    curve = Curve(intercept=0, slope=1)
    assert curve.log_chance(-800) == -800
    assert curve.log_chance(800) == 0
    assert math.exp(curve.log_chance(-math.inf)) == 0


def test_calibration_makes_no_new_version_and_runners_take_it_up(tiny_artifact: Artifact, tmp_path: Path) -> None:
    artifact = calibrated_copy(tiny_artifact, tmp_path / "copy")
    check_files(artifact)
    plain, calibrated = Runner.open(FixedBackend(), tiny_artifact), Runner.open(FixedBackend(), artifact)
    assert calibrated.version == plain.version
    assert (plain.summary["calibrated"], calibrated.summary["calibrated"]) == (False, True)
    query = Query("who", "ada wrote the first program", Options(no_answer=False))
    [one], [other] = plain.answer([query]), calibrated.answer([query])
    assert (one["answer"]["text"], other["answer"]["text"]) == (one["answer"]["text"],) * 2
    assert one["answer"]["score"] != other["answer"]["score"]
    assert not [path for path in artifact.path.iterdir() if path.name.startswith(".")]


def test_damaged_calibration_is_refused_with_the_way_out(tiny_artifact: Artifact, tmp_path: Path) -> None:
    artifact = calibrated_copy(tiny_artifact, tmp_path / "copy")
    path = artifact.file(CALIBRATION_NAME)
    whole = path.read_text()
    for content in (whole.replace("-1.3", "-1.2"), whole[: len(whole) // 2], "", whole.replace('"slope": 2.0', "{")):
        path.write_text(content)
        with pytest.raises(ArtifactRefused, match="corelane calibrate"):
            Runner.open(FixedBackend(), artifact)
    Runner.open(FixedBackend(), artifact, calibrated=False)


def test_folder_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="cannot be written"):
        write_calibration(tmp_path / "none", CALIBRATION)


def test_calibration_of_another_version_is_refused(tiny_artifact: Artifact, tmp_path: Path) -> None:
    shutil.copytree(tiny_artifact.path, tmp_path / "copy")
    write_calibration(tmp_path / "copy", CALIBRATION)
    with pytest.raises(ArtifactRefused, match="fitted for version 0"):
        read_calibration(tmp_path / "copy", CALIBRATION.version + "0")


def test_precision_asked_of_a_model_that_is_not_calibrated_fails_that_item_alone(tiny_artifact: Artifact) -> None:
    runner = Runner.open(FixedBackend(), tiny_artifact)
    results = runner.answer([Query("who", "ada", Options(min_precision=0.5)), Query("who", "ada")])
    assert [result["status"] for result in results] == ["failed", "succeeded"]
    assert results[0]["error"]["code"] == "not_calibrated"


def test_precision_asked_of_a_calibrated_model_gives_only_answers_that_sure(
    tiny_artifact: Artifact, tmp_path: Path
) -> None:
    runner = Runner.open(FixedBackend(), calibrated_copy(tiny_artifact, tmp_path / "copy"))
    [best] = runner.answer([Query("who", "ada wrote")])
    score = best["answers"][0]["score"]
    for asked, is_given in ((score - 0.01, True), (score + 0.01, False)):
        [result] = runner.answer([Query("who", "ada wrote", Options(min_precision=asked))])
        assert (result["answer"] is not None) == is_given
        assert result["answers"] == best["answers"]


@pytest.mark.parametrize(
    ("options", "likelier", "is_given"),
    [
        (Options(), None, True),
        (Options(), True, True),
        (Options(), False, False),
        (Options(no_answer=False), False, True),
        (Options(no_answer_threshold=-3.0), True, False),
        (Options(no_answer_threshold=3.0), False, True),
        (Options(min_precision=0.4), False, True),
        (Options(min_precision=0.6), True, False),
    ],
)
def test_what_the_job_asks_for_decides_before_the_models_own_rule(
    options: Options, likelier: bool | None, is_given: bool
) -> None:
    assert gives_answer(options, 1.0, 0.5, 0.0, likelier) == is_given


@st.composite
def documents(draw: st.DrawFn) -> list[ReadWindow]:
    """Draw a text of one-letter tokens, cut in windows, with any margins in each."""
    windows = []
    for number in range(draw(st.integers(1, 5))):
        drawn = draw(st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=6))
        margins = np.array(sorted(drawn, reverse=True), dtype=np.float32)
        starts = np.array(draw(st.lists(st.integers(0, TOKENS - 3), min_size=len(margins), max_size=len(margins))))
        ends = starts + np.array(draw(st.lists(st.integers(0, 2), min_size=len(margins), max_size=len(margins))))
        mass = float(np.logaddexp.reduce(margins.astype(np.float64))) + draw(st.floats(0, 5))
        window = Window(number * TOKENS, (number + 1) * TOKENS, TOKENS + 4)
        windows.append(ReadWindow(window, 3, WindowSpans(starts + 3, ends + 3, margins, mass)))
    return windows


def answer(windows: Sequence[ReadWindow], calibration: Calibration | None, top_k: int = 1) -> dict[str, Any]:
    length = 5 * TOKENS
    places = np.column_stack([np.arange(length), np.arange(1, length + 1)]).astype(np.int32)
    context = Context(np.zeros(length, dtype=np.int32), places)
    query = Query("q", "abcdefghijkl" * 5, Options(top_k=top_k, no_answer=False))
    return compose_result(query, context, windows, 0.0, calibration)


@given(documents())
def test_best_answer_of_a_document_is_the_best_of_its_parts_by_score(windows: list[ReadWindow]) -> None:
    whole = answer(windows, CALIBRATION)["answer"]
    parts = [answer([window], CALIBRATION)["answer"] for window in windows]
    best = max(part["score"] for part in parts)
    assert whole["score"] == best
    assert (whole["start"], whole["end"]) in {(p["start"], p["end"]) for p in parts if p["score"] == best}


@given(documents(), st.integers(1, 5))
def test_calibrated_scores_fall_and_add_up_to_at_most_one(windows: list[ReadWindow], top_k: int) -> None:
    result = answer(windows, CALIBRATION, top_k)
    shares = [each["score"] for each in result["answers"]]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) + result["no_answer_score"] <= 1 + 1e-5
