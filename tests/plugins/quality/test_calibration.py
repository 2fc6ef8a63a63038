"""Calibration: the fit, the file, and what scores mean with it."""

import math
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.artifacts.calibration import CALIBRATION_NAME, Calibration, Curve, read_calibration, write_calibration
from corelane.artifacts.manifest import Artifact, check_files, read_artifact
from corelane.engine.runner import Runner
from corelane.engine.task import Window
from corelane.engine.text.tokenize import TextTokens
from corelane.errors import ArtifactRefused, InvalidInput, SetupError
from corelane.tasks.question_answering.engine.spans import Candidate, WindowSpans, gives_answer
from corelane.tasks.question_answering.engine.task import QuestionQuery as Query
from corelane.tasks.question_answering.engine.task import ReadWindow, compose_result
from corelane.tasks.question_answering.options import AnswerOptions
from corelane.tasks.question_answering.quality.evaluation import evaluate
from corelane.tasks.question_answering.quality.fitting import (
    Observation,
    Seen,
    check_kinds,
    choose_threshold,
    fit,
    held_out,
)
from corelane.tasks.question_answering.squad import SquadQuestion
from tests.tools.artifacts import CALIBRATION
from tests.tools.fakes import FixedBackend

TOKENS = 12


def draw_observations(count: int, seed: int) -> list[Observation]:
    """Outcomes drawn by known curves: what a fit should find again."""
    rng = np.random.default_rng(seed)
    margins, shares = rng.normal(5, 6, count), -rng.exponential(0.8, count)
    answerable = rng.random(count) < 1 / (1 + np.exp(1.3 - 0.2 * margins))
    right = answerable & (rng.random(count) < 1 / (1 + np.exp(-2.5 - 2.0 * shares)))
    rows = zip(margins.tolist(), shares.tolist(), right.tolist(), answerable.tolist(), strict=True)
    return [Observation(margin, share, r, float(r), known) for margin, share, r, known in rows]


def as_seen(observed: Observation, context: str) -> Seen:
    """Return a question that this was observed of."""
    context += " right"
    gold = () if not observed.answerable else ("right",) if observed.right else ("wrong",)
    best = Candidate(len(context) - 5, len(context), observed.margin, observed.log_share, observed.margin)
    return SquadQuestion("q", "what", context, gold), best


def calibrated_copy(artifact: Artifact, folder: Path) -> Artifact:
    shutil.copytree(artifact.path, folder)
    write_calibration(folder, CALIBRATION.model_copy(update={"version": artifact.manifest.version}))
    return read_artifact(folder)


def test_fit_finds_the_curves_that_outcomes_were_drawn_by() -> None:
    answerable, right, _ = fit(draw_observations(20_000, seed=1))
    assert (answerable.intercept, answerable.slope) == pytest.approx((-1.3, 0.2), abs=0.1)
    assert (right.intercept, right.slope) == pytest.approx((2.5, 2.0), abs=0.2)
    assert fit(draw_observations(20_000, seed=1))[:2] == (answerable, right)


def test_outcomes_that_a_feature_separates_still_give_a_finite_curve() -> None:
    rows = [Observation(float(n), -abs(n - 70) / 50, n > 60, float(n > 60), n > 40) for n in range(100)]
    for curve in fit(rows)[:2]:
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
    upside_down = [replace(each, margin=-each.margin) for each in draw_observations(2_000, 3)]
    with pytest.raises(InvalidInput, match="margins do not tell"):
        fit(upside_down)


@pytest.mark.parametrize("contexts", [["one"], ["answerable", "not"]])
def test_file_of_which_no_part_can_be_judged_by_the_rest_says_so(contexts: list[str]) -> None:
    rows = sorted(draw_observations(500, seed=4), key=lambda each: not each.answerable)
    seen = [as_seen(each, contexts[0] if each.answerable else contexts[-1]) for each in rows]
    fit(rows)
    with pytest.raises(InvalidInput, match="all outcomes are equal"):
        held_out(seen)


def test_threshold_has_the_best_f1_over_all_questions_and_of_equal_ones_gives_most_answers() -> None:
    def at(margin: float, f1: float | None) -> Observation:
        return Observation(margin, 0.0, f1 == 1, f1 or 0.0, f1 is not None)

    assert choose_threshold([at(5, 1.0), at(4, None), at(3, 0.9), at(2, None)]) == -4.5
    assert choose_threshold([at(5, 1.0), at(4, None), at(3, 1.0), at(2, None)]) == -2.5
    assert choose_threshold([at(5, None), at(4, 0.9)]) < -5
    assert choose_threshold([at(5, None), at(4, 1.0)]) == -4
    assert choose_threshold([at(5, 1.0), at(-4, 0.0)]) == 4


def test_questions_in_any_order_are_judged_by_a_fit_of_their_own_mix() -> None:
    """As several development files are joined: first questions that have an answer, then those that have none."""
    rows = draw_observations(400, seed=5)
    for some in (rows, sorted(rows, key=lambda each: not each.answerable)):
        seen = [as_seen(each, str(number // 4)) for number, each in enumerate(some)]
        results = held_out(seen)
        assert [result.index for result in results] == list(range(400))
        assert evaluate([question for question, _ in seen], results).ece < 0.08


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
    query = Query("who", "ada wrote the first program", AnswerOptions(no_answer=False))
    [one], [other] = plain.results_of([query]), calibrated.results_of([query])
    assert (one["answer"]["text"], other["answer"]["text"]) == (one["answer"]["text"],) * 2
    assert one["answer"]["score"] != other["answer"]["score"]
    assert not [path for path in artifact.path.iterdir() if path.name.startswith(".")]


def test_damaged_calibration_is_refused_with_the_way_out(tiny_artifact: Artifact, tmp_path: Path) -> None:
    artifact = calibrated_copy(tiny_artifact, tmp_path / "copy")
    path = artifact.file(CALIBRATION_NAME)
    whole = path.read_text()
    for content in (whole.replace("-1.3", "-1.2"), whole[: len(whole) // 2], "", whole.replace('"slope": 2.0', "{")):
        path.write_text(content)
        with pytest.raises(ArtifactRefused, match="calibrate the model again"):
            Runner.open(FixedBackend(), artifact)


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
    results = runner.results_of([Query("who", "ada", AnswerOptions(min_precision=0.5)), Query("who", "ada")])
    assert [result["status"] for result in results] == ["failed", "succeeded"]
    assert results[0]["error"]["code"] == "not_calibrated"


def test_precision_asked_of_a_calibrated_model_gives_only_answers_that_sure(
    tiny_artifact: Artifact, tmp_path: Path
) -> None:
    runner = Runner.open(FixedBackend(), calibrated_copy(tiny_artifact, tmp_path / "copy"))
    [best] = runner.results_of([Query("who", "ada wrote")])
    score = best["answers"][0]["score"]
    for asked, is_given in ((score - 0.01, True), (score + 0.01, False)):
        [result] = runner.results_of([Query("who", "ada wrote", AnswerOptions(min_precision=asked))])
        assert (result["answer"] is not None) == is_given
        assert result["answers"] == best["answers"]


@pytest.mark.parametrize(
    ("options", "threshold", "is_given"),
    [
        (AnswerOptions(), -1.0, True),
        (AnswerOptions(), -1.1, False),
        (AnswerOptions(no_answer=False), -1.1, True),
        (AnswerOptions(no_answer_threshold=-3.0), 0.0, False),
        (AnswerOptions(no_answer_threshold=3.0), -1.1, True),
        (AnswerOptions(min_precision=0.4), -1.1, True),
        (AnswerOptions(min_precision=0.6), 0.0, False),
    ],
)
def test_what_the_job_asks_for_decides_before_the_models_own_threshold(
    options: AnswerOptions, threshold: float, is_given: bool
) -> None:
    assert gives_answer(options, 1.0, 0.5, threshold) == is_given


def test_threshold_of_a_calibration_goes_before_the_models_own(tiny_artifact: Artifact, tmp_path: Path) -> None:
    artifact = calibrated_copy(tiny_artifact, tmp_path / "copy")
    query = Query("who", "ada wrote")
    assert b"no_answer_threshold" not in artifact.file(CALIBRATION_NAME).read_bytes()
    for known, is_given in ((None, True), (-1000.0, False), (1000.0, True)):
        calibration = CALIBRATION.model_copy(update={"version": artifact.manifest.version})
        write_calibration(artifact.path, calibration.model_copy(update={"no_answer_threshold": known}))
        runner = Runner.open(FixedBackend(), artifact)
        assert (runner.results_of([query])[0]["answer"] is not None) == is_given
        shown = known if known is not None else artifact.manifest.no_answer_threshold
        assert runner.summary["no_answer_threshold"] == shown


def test_no_score_is_above_the_highest_precision(tiny_artifact: Artifact, tmp_path: Path) -> None:
    runner = Runner.open(FixedBackend(), calibrated_copy(tiny_artifact, tmp_path / "copy"))
    highest = runner.summary["highest_precision"]
    assert highest == 0.924
    assert math.exp(CALIBRATION.log_score(1000.0, 0.0)) == pytest.approx(highest, abs=0.001)
    assert Runner.open(FixedBackend(), tiny_artifact).summary["highest_precision"] is None


@pytest.mark.parametrize("calibration", [None, CALIBRATION])
def test_candidates_that_are_worth_nothing_are_left_out_after_the_best(calibration: Calibration | None) -> None:
    def found(*margins: float) -> list[float]:
        places = np.arange(3, 3 + len(margins))
        mass = float(np.logaddexp.reduce(margins))
        spans = WindowSpans(places, places, np.array(margins, dtype=np.float32), mass)
        read_one = ReadWindow(Window(0, TOKENS, TOKENS + 4), 3, spans)
        return [each["score"] for each in answer([read_one], calibration, top_k=4)["answers"]]

    scores = found(9.0, 8.0, -20.0, -21.0)
    assert len(scores) == 2
    assert min(scores) > 0
    assert found(-600.0, -601.0) == [0.0]


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
    context = TextTokens(np.zeros(length, dtype=np.int32), places)
    query = Query("q", "abcdefghijkl" * 5, AnswerOptions(top_k=top_k, no_answer=False))
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
