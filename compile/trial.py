"""``auto``: a short measured trial of every dtype on this CPU.

Machines differ: with AMX bf16 is four to five times as fast as fp32, without any bf16 unit it is slower, and no name of
a CPU tells how the libraries fare on it. Speed decides, and answers have a veto.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from functools import partial

from compile.cpu import Dtype, QuestionAnswering, cast, compile_trace, runner_of, trace
from compile.model import LoadedModel
from compile.probes import Run, make_probe
from compile.timing import median_seconds
from compile.verify import TOLERANCES, inspect, judge, judge_answers, share_equal
from corelane.engine.buckets import Bucket
from corelane.engine.packing import settle
from corelane.errors import CompileFailed

#: The batch that is timed: a common length, and rows enough for full speed within a few seconds.
TRIAL_ROWS, TRIAL_LENGTH = 4, 128

#: From the most exact dtype to the least, and how many times as fast as the best before it each must be to be taken:
#: an int8 logit is some four times as far from fp32 as a bf16 one, and a few percent of speed are not worth that.
LEAST_GAIN: dict[Dtype, float] = {"fp32": 1.0, "bf16": 1.05, "int8": 1.25}


@dataclass(frozen=True, slots=True)
class Trial:
    """Sequences/s by dtype, and the dtypes whose logits and answers will do."""

    speeds: Mapping[Dtype, float]
    sound: Set[Dtype]


def answers_needed(dtype: Dtype, automatic: bool, examined: bool = False) -> float:
    """The share of sample answers that must be equal: all where int8 was nobody's wish and no exam will judge it."""
    return 1.0 if automatic and dtype == "int8" and not examined else TOLERANCES[dtype].answers_equal


def run_trial(model: LoadedModel, reference: QuestionAnswering, longest: int, examined: bool = False) -> Trial:
    """Compile, check and time each dtype; one that cannot be compiled or does not agree is not sound.

    ``examined``: whether an exam will judge the answers of the whole artifact.
    """
    probe = make_probe(model, Bucket(length=min(TRIAL_LENGTH, longest), rows=TRIAL_ROWS), runner_of(reference))
    runs: dict[Dtype, Run] = {}
    sound: set[Dtype] = set()
    for dtype in LEAST_GAIN:
        try:
            runs[dtype] = runner_of(settle(compile_trace(trace(cast(reference, dtype), probe.batches[0]), dtype)))
            findings = inspect(probe, runs[dtype], dtype)
            judge(findings, dtype, "the trial")
            judge_answers(share_equal([findings]), answers_needed(dtype, automatic=True, examined=examined), dtype)
            sound.add(dtype)
        except (CompileFailed, RuntimeError):
            continue
    seconds = median_seconds({dtype: partial(run, probe.batches[0]) for dtype, run in runs.items()})
    return Trial({dtype: round(TRIAL_ROWS / taken, 1) for dtype, taken in seconds.items()}, frozenset(sound))


def rank_dtypes(trial: Trial) -> list[Dtype]:
    """The dtypes worth trying, best first; fp32 is always among them, at the latest as the last."""
    ranked: list[Dtype] = ["fp32"]
    for dtype, gain in LEAST_GAIN.items():
        if dtype in trial.sound and dtype != "fp32" and _is_faster(trial.speeds, dtype, ranked[0], gain):
            ranked.insert(0, dtype)
    return ranked


def _is_faster(speeds: Mapping[Dtype, float], dtype: Dtype, best: Dtype, gain: float) -> bool:
    return speeds[dtype] >= gain * speeds.get(best, 0.0)
