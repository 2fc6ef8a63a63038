"""``auto``: a short measured trial of every dtype on this CPU, and of int8 in the other format.

Machines differ: with AMX bf16 is four to five times as fast as fp32, without any bf16 unit it is slower, and no name of
a CPU tells how the libraries fare on it. Speed decides, and answers have a veto.
"""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from functools import partial

from compile.cpu import Dtype, QuestionAnswering, Way, cast, compile_trace, dtype_of, runner_of, trace
from compile.model import LoadedModel
from compile.openvino import Graph
from compile.probes import Probe, Run, make_probe
from compile.timing import median_seconds
from compile.verify import TOLERANCES, inspect, judge, judge_answers, share_equal
from corelane.engine.backends.packing import settle
from corelane.engine.buckets import Bucket
from corelane.errors import CompileFailed

#: The batch that is timed: a common length, and rows enough for full speed within a few seconds.
TRIAL_ROWS, TRIAL_LENGTH = 4, 128

#: From the most exact dtype to the least, and how many times as fast as the best before it each must be to be taken:
#: an int8 logit is some four times as far from fp32 as a bf16 one, and a few percent of speed are not worth that; and a
#: format of its own needs a library more where it serves.
LEAST_GAIN: dict[Way, float] = {"fp32": 1.0, "bf16": 1.05, "int8": 1.25, "openvino int8": 1.3}


@dataclass(frozen=True, slots=True)
class Trial:
    """Sequences/s by way, and the ways whose logits and answers will do."""

    speeds: Mapping[Way, float]
    sound: Set[Way]


def answers_needed(dtype: Dtype, automatic: bool, examined: bool = False) -> float:
    """The share of sample answers that must be equal: all where int8 was nobody's wish and no exam will judge it."""
    return 1.0 if automatic and dtype == "int8" and not examined else TOLERANCES[dtype].answers_equal


def run_trial(
    model: LoadedModel, reference: QuestionAnswering, longest: int, examined: bool = False, graph: Graph | None = None
) -> Trial:
    """Compile, check and time each dtype; one that cannot be compiled or does not agree is not sound.

    ``examined``: whether an exam will judge the answers of the whole artifact; ``graph``: OpenVINO's, if it takes part.
    """
    probe = make_probe(model, Bucket(length=min(TRIAL_LENGTH, longest), rows=TRIAL_ROWS), runner_of(reference))
    runs: dict[Way, Run] = {}
    sound: set[Way] = set()
    for way in LEAST_GAIN:
        dtype = dtype_of(way)
        try:
            if way != "openvino int8":
                runs[way] = _compile(reference, dtype, probe)
            elif graph is not None:
                runs[way] = graph.run()
            else:
                continue
            findings = inspect(probe, runs[way], dtype)
            judge(findings, dtype, "the trial")
            judge_answers(share_equal([findings]), answers_needed(dtype, automatic=True, examined=examined), dtype)
            sound.add(way)
        except (CompileFailed, RuntimeError):
            continue
    seconds = median_seconds({way: partial(run, probe.batches[0]) for way, run in runs.items()})
    return Trial({way: round(TRIAL_ROWS / taken, 1) for way, taken in seconds.items()}, frozenset(sound))


def _compile(reference: QuestionAnswering, dtype: Dtype, probe: Probe) -> Run:
    return runner_of(settle(compile_trace(trace(cast(reference, dtype), probe.batches[0]), dtype)))


def rank_ways(trial: Trial) -> list[Way]:
    """The ways worth trying, best first; fp32 is always among them, at the latest as the last."""
    ranked: list[Way] = ["fp32"]
    for way, gain in LEAST_GAIN.items():
        if way in trial.sound and way != "fp32" and _is_faster(trial.speeds, way, ranked[0], gain):
            ranked.insert(0, way)
    return ranked


def _is_faster(speeds: Mapping[Way, float], way: Way, best: Way, gain: float) -> bool:
    return speeds[way] >= gain * speeds.get(best, 0.0)
