"""Compare a compiled model with the eager one: its logits, its results, and whether padding or other rows change them.

``compare`` runs a compiled bucket on a probe and measures; the judgements are pure. A model that ignores its mask,
mixes rows or returns NaN does not pass, whatever its speed.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from compile.model.families import FAMILIES
from compile.model.probes import Probe, run_unpadded
from corelane.artifacts.manifest import NumberFormat
from corelane.engine.backends.protocol import Logits, Pass, WindowBatch
from corelane.engine.buckets import LENGTH_STEP, cut_to
from corelane.errors import CompileFailed, RunFailed


class Disagreement(CompileFailed):
    """The compiled model does not agree with the eager network."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The bounds of a dtype.

    ``logit`` is the largest difference from eager, ``isolation`` the largest one when only padding or other rows
    change, ``equal`` the smallest share of equal results.
    """

    logit: float
    isolation: float
    equal: float


#: Logits are log-odds of about ±10. Measured on the built-in model over 192 items of SQuAD: largest |Δlogit| 0.18
#: in bf16 and 0.69 in int8, with 99 % and 96 % of the results equal. Deeper models lie somewhat above, and so does
#: int8 that is calibrated by the samples alone: 1.55, without loss of F1. Rows did not influence each other in any
#: dtype; the bound leaves a kernel free to sum in another order. fp16 and tf32 keep eight times as fine a mantissa as
#: bf16, fp8 a far coarser one; those three are Neuron's and were not measured.
TOLERANCES: dict[NumberFormat, Tolerance] = {
    "fp32": Tolerance(logit=1e-3, isolation=1e-4, equal=1.0),
    "tf32": Tolerance(logit=0.1, isolation=0.02, equal=0.95),
    "fp16": Tolerance(logit=0.1, isolation=0.02, equal=0.95),
    "bf16": Tolerance(logit=0.5, isolation=0.1, equal=0.9),
    "int8": Tolerance(logit=2.5, isolation=0.1, equal=0.8),
    "fp8_e4m3": Tolerance(logit=1.5, isolation=0.1, equal=0.8),
}

#: Passes that must give the same logits as the first. They are also timed. Some files compiled for Neuron on another
#: machine ran only once. After ``REPEATS_S`` seconds no more are run: one of 8,192 tokens takes half a minute.
REPEATS, REPEATS_S = 3, 2.0

#: A trace works at another length if its |Δlogit| to the network is at most this. The |Δlogit| of a trace that works is
#: 0 (BERT, RoBERTa and DistilBERT, every dtype); if a length was recorded as a constant, it is far larger.
SAME_LOGIT = 1e-4

Candidate = TypeVar("Candidate")
Built = TypeVar("Built")


@dataclass(frozen=True, slots=True)
class BucketComparison:
    """Measurements of one compiled bucket; errors are in logits, and NaN if a logit was NaN.

    ``batch_s`` is the warm median time of the first batch.
    """

    logit_error: float
    isolation_error: float
    equal: int
    results: int
    flexible_rows: bool
    repeat_error: float = 0.0
    flexible_lengths: bool = False
    batch_s: float = 0.0


def compare(probe: Probe, run: Pass, dtype: NumberFormat, *, fewer_rows: bool = True) -> BucketComparison:
    """Run a compiled bucket on the samples; raises RunFailed if a run fails.

    ``fewer_rows`` says whether to try batches that do not fill the bucket. The first batch fills it. The others are cut
    as the service cuts them, where rows and lengths are flexible.
    """
    first, tolerance = run(probe.batches[0]), TOLERANCES[dtype].logit
    flexible_rows = fewer_rows and _takes_fewer_rows(probe, run, tolerance)
    flexible_lengths = fewer_rows and _takes_shorter_rows(probe, run, tolerance)

    def run_cut(batch: WindowBatch, rows: int) -> Logits:
        cut = batch.first(rows) if flexible_rows else batch
        return run_unpadded(probe.task, run, cut, step=LENGTH_STEP) if flexible_rows and flexible_lengths else run(cut)

    others = zip(probe.batches[1:], probe.rows[1:], strict=True)
    compared = _compare_results(probe, [first, *(run_cut(batch, len(rows)) for batch, rows in others)])
    isolation_error = _isolation_error(probe, run, first)
    repeat_error, batch_s = _repeat(probe, run, first)
    return replace(
        compared,
        isolation_error=isolation_error,
        flexible_rows=flexible_rows,
        flexible_lengths=flexible_lengths,
        repeat_error=repeat_error,
        batch_s=batch_s,
    )


def compare_logits(probe: Probe, run: Pass) -> BucketComparison:
    """Run a candidate on the samples once, for its logits and results alone; raises RunFailed if a run fails."""
    return _compare_results(probe, [run(batch) for batch in probe.batches])


def _compare_results(probe: Probe, got: Sequence[Logits]) -> BucketComparison:
    errors = [
        _largest_difference(probe, ours, theirs, batch, len(rows))
        for ours, theirs, batch, rows in zip(got, probe.expected, probe.batches, probe.rows, strict=True)
    ]
    expected, found = probe.found, probe.task.found(probe.rows, got)
    equal = sum(found.get(item) == result for item, result in expected.items())
    return BucketComparison(float(np.max(errors)), 0.0, equal, len(expected), flexible_rows=False)


def holds(probe: Probe, traced: Pass, network: Pass) -> bool:
    """Return whether a trace made at another length gives the network's logits at the probe's length."""
    parts = [batch.first(len(rows) + 1) for batch, rows in zip(probe.batches, probe.rows, strict=True)]
    # transformers makes no mask if no token is hidden; a trace has one.
    part = next((part for part in reversed(parts) if not part.attention_mask.all()), parts[-1])
    try:
        return _largest_difference(probe, traced(part), network(part), part, part.rows) <= SAME_LOGIT
    except (RuntimeError, IndexError, ValueError):
        return False


def judge(compared: BucketComparison, dtype: NumberFormat, what: str) -> None:
    """Raise Disagreement if one bucket's logits differ from the eager network's; ``what`` names the bucket."""
    tolerance = TOLERANCES[dtype]
    if not compared.logit_error <= tolerance.logit:
        raise Disagreement(
            f"{what} in {dtype} gives other logits than the eager model: they differ by {compared.logit_error:.3g}, "
            f"and {tolerance.logit:g} is allowed{_advice(dtype)}"
        )
    if not compared.repeat_error <= tolerance.isolation:
        raise Disagreement(
            f"{what} in {dtype} gives other logits when the same batch is run again, by {compared.repeat_error:.3g}; "
            f"{tolerance.isolation:g} is allowed"
        )
    if not compared.isolation_error <= tolerance.isolation:
        raise Disagreement(
            f"{what} in {dtype} lets padding or other rows change a row's logits, by {compared.isolation_error:.3g}; "
            f"{tolerance.isolation:g} is allowed{_advice(dtype)}"
        )


def judge_results(share: float, least: float, dtype: NumberFormat) -> None:
    """Raise Disagreement if too few results of the samples equal the eager network's."""
    if share < least:
        raise Disagreement(
            f"{dtype} changes results: {share:.0%} of the samples have those of the eager model, and {least:.0%} "
            f"must be{_advice(dtype)}"
        )


def judge_f1(points: float, most: float, dtype: NumberFormat) -> None:
    """Raise Disagreement if more than ``most`` points of F1 are lost."""
    if not points <= most:
        raise Disagreement(f"{dtype} loses {points:.2f} points of F1, and {most:g} are allowed{_advice(dtype)}")


def share_equal(compared: Sequence[BucketComparison]) -> float:
    """Return the share of the samples' results, over several buckets, that equal the eager network's."""
    asked = sum(one.results for one in compared)
    return sum(one.equal for one in compared) / asked if asked else 1.0


def first_in_agreement(candidates: Sequence[Candidate], build: Callable[[Candidate], Built]) -> Built:
    """Build the candidates, best first, until one agrees with the eager network; raises the last one's Disagreement."""
    for candidate in candidates[:-1]:
        try:
            return build(candidate)
        except Disagreement:
            continue
    return build(candidates[-1])


def _advice(dtype: NumberFormat) -> str:
    return f"; {FAMILIES}" if dtype == "fp32" else "; use --dtype fp32"


def _largest_difference(probe: Probe, one: Logits, other: Logits, batch: WindowBatch, rows: int) -> float:
    """Return the largest |Δlogit| of the first rows, or of their visible tokens; NaN if one is NaN."""
    visible = batch.attention_mask[:rows] == 1
    with np.errstate(invalid="ignore"):
        found = [ours[:rows] - theirs[:rows] for ours, theirs in zip(one, other, strict=True)]
    return float(np.max([np.max(np.abs(each[visible] if probe.task.per_token else each)) for each in found]))


def _isolation_error(probe: Probe, run: Pass, before: Logits) -> float:
    """Return how far row 0 of the first batch moves when its padding and all other rows get other tokens."""
    batch = probe.batches[0]
    mask = batch.attention_mask.copy()
    mask[1:] = np.roll(mask[1:], 1, axis=0)
    longest = probe.batches[-1].input_ids[0]
    ids = np.where(mask == 1, np.roll(batch.input_ids, 1, axis=1), longest)
    types = batch.token_type_ids.copy()
    if types.any():
        types = (types == 0).astype(types.dtype)
    real = mask[0] == 1
    ids[0, real], types[0, real] = batch.input_ids[0, real], batch.token_type_ids[0, real]
    after = run(WindowBatch(batch.bucket, ids, mask, types))
    return _largest_difference(probe, after, before, batch, 1)


def _repeat(probe: Probe, run: Pass, before: Logits) -> tuple[float, float]:
    """Run the first batch again, several times, after all others; return how far its logits move, and its median
    seconds.
    """
    batch = probe.batches[0]
    errors, seconds = [], []
    for _ in range(REPEATS):
        began = time.perf_counter()
        after = run(batch)
        seconds.append(time.perf_counter() - began)
        errors.append(_largest_difference(probe, after, before, batch, batch.rows))
        if sum(seconds) > REPEATS_S:
            break
    return float(np.max(errors)), statistics.median(seconds)


def _takes_fewer_rows(probe: Probe, run: Pass, tolerance: float) -> bool:
    """Return whether batches of one row, and of one row less than full, give the logits of a full batch."""
    batch, rows = probe.batches[0], len(probe.rows[0])
    for count in {1, max(1, rows - 1)} - {batch.rows}:
        part = batch.first(count)
        try:
            got = run(part)
        except (RunFailed, RuntimeError):
            return False
        if got[0].shape[0] != count or not _largest_difference(probe, got, probe.expected[0], part, count) <= tolerance:
            return False
    return True


def _takes_shorter_rows(probe: Probe, run: Pass, tolerance: float) -> bool:
    """Return whether the first batch gives the same logits if cut to its longest row, and at lengths between."""
    batch, expected, rows = probe.batches[0], probe.expected[0], len(probe.rows[0])
    longest = int(batch.attention_mask.sum(axis=1).max())
    for length in {longest, min(batch.bucket.length, cut_to(longest))}:
        try:
            got = run(batch.cut(length))
        except (RunFailed, RuntimeError):
            return False
        per_token = probe.task.per_token
        if got[0].shape[:2] != (batch.rows, length) and per_token:
            return False
        whole = tuple(each[:, :length] for each in expected) if per_token else expected
        if not _largest_difference(probe, got, whole, batch.cut(length), rows) <= tolerance:
            return False
    return True
