"""Verifying compiled buckets on a core of this machine, from their files, by the same rules as on the CPU."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from compile.neuron.buckets import Step
from compile.neuron.session import Session
from compile.plan import FIRST_STEPS
from compile.probes import Probe
from compile.timing import TIMED_PASSES, WARM_UP_PASSES
from compile.verify import TOLERANCES, Findings, inspect, judge, judge_answers, share_equal
from corelane.artifacts.manifest import BucketFile, NumberFormat
from corelane.errors import CompileFailed, EngineError


@dataclass(frozen=True, slots=True)
class Checked:
    """A bucket with what was measured of it."""

    bucket: BucketFile
    findings: Findings


def check_buckets(
    session: Session,
    folder: Path,
    buckets: Sequence[BucketFile],
    probes: Sequence[Probe],
    dtype: NumberFormat,
    step: Step,
) -> list[Checked]:
    """Load each bucket, compare it with the eager network, and time it; raises CompileFailed or Disagreement."""
    checked = []
    for position, (bucket, probe) in enumerate(zip(buckets, probes, strict=True)):
        step(f"verifying {bucket.rows}x{bucket.length}", FIRST_STEPS + len(buckets) + position)
        checked.append(_check_bucket(session, folder, bucket, probe, dtype))
    return checked


def judge_all(checked: Sequence[Checked], dtype: NumberFormat) -> None:
    """Raise Disagreement if too few of all sample answers are the eager network's."""
    judge_answers(share_equal([each.findings for each in checked]), TOLERANCES[dtype].answers_equal, dtype)


def _check_bucket(session: Session, folder: Path, bucket: BucketFile, probe: Probe, dtype: NumberFormat) -> Checked:
    session.load(folder / bucket.file)
    try:
        findings = inspect(probe, session.run, dtype, fewer_rows=False)
        judge(findings, dtype, f"bucket {bucket.rows}x{bucket.length}")
        seconds = []
        for _ in range(WARM_UP_PASSES + TIMED_PASSES):
            session.run(probe.batches[0])
            seconds.append(session.last_seconds)
    except EngineError as error:
        raise CompileFailed(f"the compiled model does not run: {error.detail}") from error
    measured = {
        "batch_ms": round(statistics.median(seconds[WARM_UP_PASSES:]) * 1000, 3),
        "max_logit_error": findings.logit_error,
    }
    return Checked(bucket.model_copy(update=measured), findings)
