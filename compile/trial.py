"""``auto``: a short measured trial of every dtype on this CPU, and of the formats that plugins add.

With AMX, bf16 is four to five times as fast as fp32; without a bf16 unit it is slower. The name of a CPU does not tell
how fast the libraries run on it. The fastest dtype wins, among those whose results are close enough.
"""

from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Literal, cast

from compile.model.probes import Probe
from compile.model.timing import median_seconds
from compile.verify import TOLERANCES, compare_logits, judge, judge_results, share_equal
from corelane.artifacts.manifest import NumberFormat
from corelane.engine.backends.protocol import Pass
from corelane.errors import CompileFailed

#: One of the choices of ``auto``: a dtype in TorchScript, or another format's name and a dtype.
Way = str

#: The ways, the most exact first. Each must be this many times as fast as the best way before it. A few percent of
#: speed are not worth int8: its logits are some four times as far from those in fp32 as bf16's are.
LEAST_GAIN: Mapping[Way, float] = {"fp32": 1.0, "bf16": 1.05, "int8": 1.25}


@dataclass(frozen=True, slots=True)
class Trial:
    """Sequences/s by way, and the ways whose logits and results are close enough to the eager network's."""

    speeds: Mapping[Way, float]
    sound: Set[Way]


def dtype_of(way: Way) -> Literal["fp32", "bf16", "int8"]:
    """Return the dtype that a way computes in."""
    return cast(Literal["fp32", "bf16", "int8"], way.rpartition(" ")[-1])


def results_needed(dtype: NumberFormat, automatic: bool, evaluated: bool = False) -> float:
    """Return the share of the samples' results that must be equal.

    All must be equal if ``auto`` chose int8 and there is no eval set to judge it.
    """
    return 1.0 if automatic and dtype == "int8" and not evaluated else TOLERANCES[dtype].equal


def run_trial(probe: Probe, candidates: Mapping[Way, Callable[[], Pass]], evaluated: bool) -> Trial:
    """Compile, check and time each candidate; a candidate that fails to compile or does not agree is not ``sound``.

    ``evaluated`` says that an eval set will judge the results of the whole artifact.
    """
    runs: dict[Way, Pass] = {}
    for way, compiled in candidates.items():
        with suppress(CompileFailed, RuntimeError):
            runs[way] = compiled()
    sound: set[Way] = set()
    for way, run in runs.items():
        dtype = dtype_of(way)
        try:
            compared = compare_logits(probe, run)
            judge(compared, dtype, "the trial")
            judge_results(share_equal([compared]), results_needed(dtype, automatic=True, evaluated=evaluated), dtype)
            sound.add(way)
        except (CompileFailed, RuntimeError):
            continue
    batch = probe.batches[0]
    seconds = median_seconds({way: partial(run, batch) for way, run in runs.items()})
    speeds = {way: round(batch.bucket.rows / taken, 1) for way, taken in seconds.items()}
    return Trial(speeds, frozenset(sound))


def rank_ways(trial: Trial, added: Mapping[Way, float]) -> list[Way]:
    """Return the ways worth trying, best first; fp32 is always among them.

    ``added`` holds the smallest gain required of each other format.
    """
    ranked: list[Way] = ["fp32"]
    for way, gain in (*LEAST_GAIN.items(), *added.items()):
        if way in trial.sound and way != "fp32" and trial.speeds[way] >= gain * trial.speeds.get(ranked[0], 0.0):
            ranked.insert(0, way)
    return ranked
