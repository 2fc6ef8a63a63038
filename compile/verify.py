"""Compiled against eager: the logits, the answers, and that padding and other rows change nothing.

``inspect`` runs the compiled model on a probe and measures; the judgements are pure. A model that ignores its mask,
mixes rows or returns NaN does not pass, whatever its speed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from compile.probes import Probe, Run, find_answers
from corelane.artifacts.manifest import NumberFormat
from corelane.engine.backends.protocol import Batch, Logits
from corelane.errors import CompileFailed, RunFailed


class Disagreement(CompileFailed):
    """What was compiled is not the eager network."""


#: Where an operator finds what can be done about a model that does not pass.
FAMILIES = "docs/04-targets.md lists the families that work, and what to do about others"


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What may differ: logits from eager, logits when only padding or other rows change, and the share of answers."""

    logit: float
    isolation: float
    answers_equal: float


#: Logits are log-odds of about ±10. Measured on the built-in model over 192 questions of SQuAD: largest |Δlogit| 0.18
#: in bf16 and 0.69 in int8, with 99 % and 96 % of the answers equal; deeper models lie somewhat above. Rows did not
#: influence each other in any dtype; what is allowed there is a kernel's freedom to sum in another order. fp16 and tf32
#: keep eight times as fine a mantissa as bf16, fp8 a far coarser one; those three are Neuron's and were not measured.
TOLERANCES: dict[NumberFormat, Tolerance] = {
    "fp32": Tolerance(logit=1e-3, isolation=1e-4, answers_equal=1.0),
    "tf32": Tolerance(logit=0.1, isolation=0.02, answers_equal=0.95),
    "fp16": Tolerance(logit=0.1, isolation=0.02, answers_equal=0.95),
    "bf16": Tolerance(logit=0.5, isolation=0.1, answers_equal=0.9),
    "int8": Tolerance(logit=1.5, isolation=0.1, answers_equal=0.8),
    "fp8_e4m3": Tolerance(logit=1.5, isolation=0.1, answers_equal=0.8),
}


#: Passes that must give what the first gave. Files compiled for Neuron elsewhere have been seen to run only once.
REPEATS = 3

#: |Δlogit| between a trace and its own network at a length it was not made at. Where it holds there, it is 0 (BERT,
#: RoBERTa and DistilBERT, every dtype); where a length was recorded as a constant, it is far larger.
SAME_LOGIT = 1e-4


@dataclass(frozen=True, slots=True)
class Findings:
    """What was measured of one compiled bucket; errors are in logits and NaN where a logit was none."""

    logit_error: float
    isolation_error: float
    answers_equal: int
    answers: int
    flexible_rows: bool
    repeat_error: float = 0.0


def inspect(probe: Probe, run: Run, dtype: NumberFormat, *, fewer_rows: bool = True) -> Findings:
    """Run a compiled bucket on the samples; a run that fails raises RunFailed.

    ``fewer_rows``: whether to try batches that do not fill the bucket.
    """
    got = [run(batch) for batch in probe.batches]
    errors = [
        _largest_difference(ours, theirs, batch, len(rows))
        for ours, theirs, batch, rows in zip(got, probe.expected, probe.batches, probe.rows, strict=True)
    ]
    expected, found = find_answers(probe, probe.expected), find_answers(probe, got)
    return Findings(
        logit_error=float(np.max(errors)),
        isolation_error=_isolation_error(probe, run, got[0]),
        answers_equal=sum(found.get(item) == answer for item, answer in expected.items()),
        answers=len(expected),
        flexible_rows=fewer_rows and _takes_fewer_rows(probe, run, TOLERANCES[dtype].logit),
        repeat_error=_repeat_error(probe, run, got[0]),
    )


def holds(probe: Probe, traced: Run, network: Run) -> bool:
    """Whether a trace made at another length is the same network at the probe's; one that fails there is not."""
    batch = probe.batches[-1]
    try:
        return _largest_difference(traced(batch), network(batch), batch, batch.rows) <= SAME_LOGIT
    except (RuntimeError, IndexError, ValueError):
        return False


def judge(findings: Findings, dtype: NumberFormat, what: str) -> None:
    """Raise Disagreement if one bucket's logits are not those of the eager network; ``what`` names it."""
    tolerance = TOLERANCES[dtype]
    if not findings.logit_error <= tolerance.logit:
        raise Disagreement(
            f"{what} in {dtype} gives other logits than the eager model: they differ by {findings.logit_error:.3g}, "
            f"and {tolerance.logit:g} is allowed{_advice(dtype)}"
        )
    if not findings.repeat_error <= tolerance.isolation:
        raise Disagreement(
            f"{what} in {dtype} gives other logits when the same batch is run again, by {findings.repeat_error:.3g}; "
            f"{tolerance.isolation:g} is allowed"
        )
    if not findings.isolation_error <= tolerance.isolation:
        raise Disagreement(
            f"{what} in {dtype} lets padding or other rows change a row's logits, by {findings.isolation_error:.3g}; "
            f"{tolerance.isolation:g} is allowed{_advice(dtype)}"
        )


def judge_answers(share: float, least: float, dtype: NumberFormat) -> None:
    """Raise Disagreement if too few of the sample answers are the eager network's."""
    if share < least:
        raise Disagreement(
            f"{dtype} changes answers: {share:.0%} of the sample answers are those of the eager model, and {least:.0%} "
            f"must be{_advice(dtype)}"
        )


def judge_f1(points: float, most: float, dtype: NumberFormat) -> None:
    """Raise Disagreement if more points of F1 are lost than may be."""
    if not points <= most:
        raise Disagreement(f"{dtype} loses {points:.2f} points of F1, and {most:g} are allowed{_advice(dtype)}")


def share_equal(findings: Sequence[Findings]) -> float:
    """The share of sample answers, over several buckets, that are the eager network's."""
    asked = sum(one.answers for one in findings)
    return sum(one.answers_equal for one in findings) / asked if asked else 1.0


def _advice(dtype: NumberFormat) -> str:
    return f"; {FAMILIES}" if dtype == "fp32" else "; use --dtype fp32"


def _largest_difference(one: Logits, other: Logits, batch: Batch, rows: int) -> float:
    """The largest |Δlogit| over the visible tokens of the first rows; NaN spreads (it does not through ``max``)."""
    visible = batch.attention_mask[:rows] == 1
    with np.errstate(invalid="ignore"):
        start, end = one.start[:rows] - other.start[:rows], one.end[:rows] - other.end[:rows]
    return float(np.max(np.abs([start[visible], end[visible]])))


def _isolation_error(probe: Probe, run: Run, before: Logits) -> float:
    """How far row 0 of the first batch moves when its padding and all other rows are filled with other tokens."""
    batch = probe.batches[0]
    mask = batch.attention_mask.copy()
    mask[1:] = np.roll(mask[1:], 1, axis=0)
    longest = probe.batches[-1].input_ids[0]
    ids = np.where(mask == 1, np.roll(batch.input_ids, 1, axis=1), longest)
    types = 1 - batch.token_type_ids if batch.token_type_ids.any() else batch.token_type_ids.copy()
    real = mask[0] == 1
    ids[0, real], types[0, real] = batch.input_ids[0, real], batch.token_type_ids[0, real]
    after = run(Batch(batch.bucket, ids, mask, types))
    return _largest_difference(after, before, batch, 1)


def _repeat_error(probe: Probe, run: Run, before: Logits) -> float:
    """How far the first batch's logits move when it is run again, after all others, several times over."""
    batch = probe.batches[0]
    return float(np.max([_largest_difference(run(batch), before, batch, batch.rows) for _ in range(REPEATS)]))


def _takes_fewer_rows(probe: Probe, run: Run, tolerance: float) -> bool:
    """Whether a batch of one row, and one short of a full one, gives the logits of the same rows in a full batch."""
    batch = probe.batches[0]
    rows = batch.rows
    for count in {1, max(1, rows - 1)}:
        part = Batch(batch.bucket, batch.input_ids[:count], batch.attention_mask[:count], batch.token_type_ids[:count])
        try:
            got = run(part)
        except (RunFailed, RuntimeError):
            return False
        if got.start.shape[0] != count or not _largest_difference(got, probe.expected[0], part, count) <= tolerance:
            return False
    return True
