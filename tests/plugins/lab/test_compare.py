import random
from functools import cache

import pytest

from corelane.errors import InvalidInput
from corelane.plugins.lab.compare import compare
from corelane.plugins.lab.schema import Load, Report
from tests.plugins.lab.reports_for_tests import paired_reports, point_at, report_of

#: Blocks that see a difference of 10 % on a machine that drifts by as much.
BLOCKS = 10

TRIES = 40


@cache
def run_report() -> Report:
    return report_of([point_at(20, limit_s=None)])


def verdicts(effect: float, seed: int, *, blocks: int = BLOCKS) -> list[str]:
    rng = random.Random(seed)
    return [compare(*paired_reports(rng, blocks, effect)).verdict for _ in range(TRIES)]


def test_paired_runs_of_one_build_are_noise_on_a_drifting_machine() -> None:
    assert verdicts(0.0, seed=1).count("real") <= 0.05 * TRIES


def test_difference_below_the_least_that_matters_is_noise() -> None:
    assert verdicts(0.015, seed=2).count("real") <= 0.05 * TRIES


def test_paired_runs_show_a_build_slowed_by_a_tenth_on_a_drifting_machine() -> None:
    assert verdicts(0.10, seed=3).count("real") >= 0.9 * TRIES


def test_paired_difference_has_its_size_and_direction() -> None:
    found = compare(*paired_reports(random.Random(4), 40, 0.10))
    assert found.paired
    assert found.is_worse
    p50, rate = found.differences[0], found.differences[-1]
    assert (p50.figure, p50.pairs, p50.verdict, p50.direction) == ("p50_s", 40, "real", "worse")
    assert p50.low < 0.10 < p50.high
    assert (rate.figure, rate.direction) == ("items_per_s", "worse")
    assert rate.change == pytest.approx(-0.09, abs=0.03)


def test_unpaired_runs_allow_for_a_drift_that_neither_can_see() -> None:
    slow = report_of([point_at(20, limit_s=None, seed=5, slow=1.1)])
    found = compare(run_report(), slow)
    assert (found.paired, found.drift, found.verdict) == (False, 0.10, "noise")
    assert found.differences[0].high > 0.2


def test_unpaired_runs_show_what_is_larger_than_the_drift() -> None:
    slow = report_of([point_at(20, limit_s=None, seed=5, slow=2)])
    assert compare(run_report(), slow).is_worse
    back = compare(slow, run_report())
    assert (back.verdict, back.is_worse) == ("real", False)


def test_runs_of_the_same_build_once_each_are_noise_and_the_guess_is_told() -> None:
    a, b = (report_of([point_at(20, limit_s=None, repeats=1, seed=seed)]) for seed in (1, 2))
    found = compare(a, b)
    assert found.verdict == "noise"
    assert any("shows no spread" in note for note in found.notes)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"way": "job"}, "way to submit: item in A, job in B"),
        ({"hearing": "poll"}, "way to hear: wait in A, poll in B"),
        ({"workload": run_report().workload.model_copy(update={"hash": "sha256:other"})}, "workload: sha256:9a1f0c"),
        ({"service": run_report().service.model_copy(update={"dtype": "fp32"})}, "dtype of the model: bf16 in A, fp32"),
        ({"machine": run_report().machine.model_copy(update={"cores": 4})}, "cores of the machine: 2 in A, 4 in B"),
    ],
)
def test_unlike_runs_are_refused_unless_they_are_to_be_compared_anyway(fields: dict[str, object], reason: str) -> None:
    other = run_report().model_copy(update=fields)
    with pytest.raises(InvalidInput, match="--anyway") as refused:
        compare(run_report(), other)
    assert reason in str(refused.value)
    assert any(reason in each for each in compare(run_report(), other, anyway=True).unlike)


def test_other_loads_are_refused() -> None:
    (point,) = run_report().points
    load = Load(kind="poisson", rate_per_s=30)
    other = run_report().model_copy(update={"points": [point.model_copy(update={"load": load})]})
    with pytest.raises(InvalidInput, match="load: 20/s poisson for 20 s in A, 30/s poisson in B"):
        compare(run_report(), other)
    assert compare(run_report(), other, anyway=True).differences


def test_points_in_one_report_only_are_left_out_and_told() -> None:
    both = report_of([point_at(20, limit_s=None), point_at(30, limit_s=None)])
    found = compare(run_report(), both)
    assert {each.point for each in found.differences} == {"20/s poisson"}
    assert any("1 points are in one report only" in note for note in found.notes)


def test_lost_answers_are_always_real() -> None:
    a, b = paired_reports(random.Random(1), 3, 0.0)
    runs = [run.model_copy(update={"results": point_at(20, repeats=1).runs[0].results}) for run in b.points[0].runs]
    assert runs[0].results is not None
    runs[0].results = runs[0].results.model_copy(update={"lost": 3})
    lossy = b.model_copy(update={"points": [b.points[0].model_copy(update={"runs": runs})]})
    found = compare(a, lossy)
    assert found.wrong == ["3 results lost"]
    assert (found.verdict, found.is_worse) == ("real", True)


def test_worse_answers_are_real() -> None:
    point = point_at(20, limit_s=None)
    for run in point.runs:
        assert run.results is not None
        run.results = run.results.model_copy(update={"exact": 60.0})
    found = compare(run_report(), report_of([point]))
    real = [each for each in found.differences if each.verdict == "real"]
    assert [(each.figure, round(each.change, 1)) for each in real] == [("exact", -11.4)]


def test_block_with_an_invalid_run_is_left_out() -> None:
    a, b = paired_reports(random.Random(6), 5, 0.0)
    a.points[0].runs[2].invalid.append("the generator was late")
    assert {each.pairs for each in compare(a, b).differences} == {4}


def test_invalid_report_is_refused() -> None:
    late = report_of([point_at(20, limit_s=None, late_s=0.1)])
    assert not late.valid
    with pytest.raises(InvalidInput, match="B is invalid in 3 runs: the generator was late"):
        compare(run_report(), late)


def test_points_of_one_load_are_matched_by_their_names() -> None:
    (point,) = run_report().points
    slow = point_at(20, limit_s=None, slow=2)
    both = report_of([point.model_copy(update={"name": "data"}), slow.model_copy(update={"name": "pipeline"})])
    other = report_of(list(reversed(both.points)))
    assert {each.change for each in compare(both, other).differences} == {0}


def test_points_named_otherwise_are_matched_by_their_load() -> None:
    (point,) = run_report().points
    other = report_of([point.model_copy(update={"name": "evening"})])
    assert {each.change for each in compare(run_report(), other).differences} == {0}
