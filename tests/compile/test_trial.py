import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from compile.build import choose_ways
from compile.model.loading import load_model, quiet_transformers
from compile.model.reference import wrap
from compile.model.source import find_source
from compile.model.timing import one_thread
from compile.plan import BuildPlan
from compile.trial import LEAST_GAIN, Trial, Way, rank_ways
from corelane.engine.buckets import Bucket

#: A format that a plugin might add.
ADDED = {"other fp32": 1.1, "other int8": 1.3}

ALL: set[Way] = {"fp32", "bf16", *ADDED}


@pytest.mark.parametrize(
    ("speeds", "sound", "ranked"),
    [
        ({"fp32": 30, "bf16": 110, "other fp32": 34, "other int8": 115}, ALL, ["bf16", "fp32"]),
        ({"fp32": 30, "bf16": 110, "other fp32": 34, "other int8": 150}, ALL, ["other int8", "bf16", "fp32"]),
        ({"fp32": 30, "bf16": 110, "other fp32": 34, "other int8": 150}, {"fp32", "bf16"}, ["bf16", "fp32"]),
        ({"fp32": 30, "bf16": 20, "other fp32": 34, "other int8": 40}, ALL, ["other fp32", "fp32"]),
        ({"fp32": 30, "bf16": 20, "other fp32": 34, "other int8": 60}, {"fp32"}, ["fp32"]),
        ({"fp32": 30, "bf16": 31, "other fp32": 32, "other int8": 33}, ALL, ["fp32"]),
        ({"fp32": 30}, {"fp32"}, ["fp32"]),
    ],
)
def test_fastest_sound_dtype_comes_first_if_the_gain_is_worth_it(
    speeds: dict[Way, float], sound: set[Way], ranked: list[Way]
) -> None:
    assert rank_ways(Trial(speeds, sound), ADDED) == ranked


@given(st.tuples(*[st.floats(0.1, 1e4)] * 4), st.sets(st.sampled_from(["bf16", *ADDED])))
def test_fp32_is_always_the_last_resort_and_unsound_dtypes_never_chosen(
    rates: tuple[float, ...], sound: set[Way]
) -> None:
    speeds = dict(zip((*LEAST_GAIN, *ADDED), rates, strict=True))
    ranked = rank_ways(Trial(speeds, sound | {"fp32"}), ADDED)
    assert ranked[-1] == "fp32"
    assert set(ranked) <= sound | {"fp32"}
    assert len(set(ranked)) == len(ranked)


@pytest.mark.parametrize(
    ("flags", "tried"),
    [
        ("avx2", {"fp32", "openvino fp32"}),
        ("avx2 avx512f avx512_vnni", {"fp32", "openvino fp32"}),
        ("avx2 avx512f avx512_vnni avx512_bf16", {"fp32", "bf16", "openvino fp32", "openvino bf16"}),
        ("asimd", {"fp32", "bf16", "openvino fp32", "openvino bf16"}),
    ],
)
def test_trial_times_the_dtypes_that_the_cpu_may_be_fast_in_and_finds_fp32_sound(
    flags: str, tried: set[Way], tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cpuinfo").write_text(f"flags\t: {flags}\n")
    monkeypatch.setattr("corelane.artifacts.instructions.CPUINFO", tmp_path / "cpuinfo")
    # OpenVINO reads the limit once: where it has run in this process, it may have no bf16.
    unsure = {"openvino bf16"} if "ONEDNN_MAX_CPU_ISA" in os.environ else set()
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    with quiet_transformers(), one_thread():
        model = load_model(find_source(str(tiny_model)))
        plan = BuildPlan("tiny-qa", model, wrap(model), [Bucket(length=64, rows=1)])
        choice = choose_ways(plan, "auto", "auto", None, lambda *_: None)
    trial = choice.trial
    assert trial is not None
    assert tried - unsure <= set(trial.speeds) <= tried
    assert all(speed > 0 for speed in trial.speeds.values())
    assert "fp32" in trial.sound
