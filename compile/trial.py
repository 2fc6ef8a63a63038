"""``auto``: a short measured trial of the dtypes that may be fast on this CPU, in each format.

With AMX, bf16 is four to five times as fast as fp32; without a bf16 unit it is slower. The name of a CPU does not tell
how fast the libraries run on it. The fastest way wins, among those whose results are close enough.
"""

from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, cast

import numpy as np

from compile.model.probes import Probe
from compile.model.timing import median_seconds
from compile.verify import TOLERANCES, compare_logits, judge, judge_results, share_equal
from corelane.engine.backends.protocol import Pass, WindowBatch
from corelane.errors import CompileFailed

#: One of the choices of ``auto``: a dtype in TorchScript, or another format's name and a dtype.
Way = str

Dtype = Literal["fp32", "bf16", "int8"]

#: The ways of TorchScript, the more exact first. Each must be this many times as fast as the best way before it.
LEAST_GAIN: Mapping[Way, float] = {"fp32": 1.0, "bf16": 1.05}


@dataclass(frozen=True, slots=True)
class Trial:
    """Sequences/s by way, and the ways whose logits and results are close enough to the eager network's."""

    speeds: Mapping[Way, float]
    sound: Set[Way]


def dtype_of(way: Way) -> Dtype:
    """Return the dtype that a way computes in."""
    return cast(Dtype, way.rpartition(" ")[-1])


def run_trial(probe: Probe, candidates: Mapping[Way, Callable[[], Pass]]) -> Trial:
    """Compile, check and time each candidate; a candidate that fails to compile or does not agree is not ``sound``."""
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
            judge_results(share_equal([compared]), TOLERANCES[dtype].equal, dtype)
            sound.add(way)
        except (CompileFailed, RuntimeError):
            continue
    # A service's rows are of near length, so no time goes to padding here.
    batch = replace(probe.batches[0], attention_mask=np.ones_like(probe.batches[0].attention_mask))
    alone = batch.first(1)
    seconds = median_seconds({way: partial(run_each, run, (batch, alone)) for way, run in runs.items()})
    speeds = {way: round((batch.bucket.rows + 1) / taken, 1) for way, taken in seconds.items()}
    return Trial(speeds, frozenset(sound))


def run_each(run: Pass, batches: Sequence[WindowBatch]) -> None:
    """Run a pass for each batch."""
    for batch in batches:
        run(batch)


def rank_ways(trial: Trial, added: Mapping[Way, float], resort: Way = "fp32") -> list[Way]:
    """Return the ways worth trying, best first; the last ``resort`` is always among them.

    ``added`` holds the smallest gain required of each way in other formats.
    """
    ranked: list[Way] = [resort]
    for way, gain in (*LEAST_GAIN.items(), *added.items()):
        if way in trial.sound and way != resort and trial.speeds[way] >= gain * trial.speeds.get(ranked[0], 0.0):
            ranked.insert(0, way)
    return ranked
