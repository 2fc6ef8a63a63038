"""Verify compiled buckets on a core of this machine, from their files, by the same rules as on the CPU.

A build does so at its end. ``corelane verify`` does so later, for an artifact compiled on a machine without a device.
"""

import os
import statistics
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from compile.manifests import with_measures
from compile.model.probes import Probe
from compile.model.timing import TIMED_PASSES, WARM_UP_PASSES
from compile.neuron.children import Children
from compile.neuron.expected import EXPECTED_NAME, read_expected
from compile.neuron.session import Session, open_session
from compile.plan import FIRST_STEPS, Report, Step
from compile.verify import TOLERANCES, Comparison, compare, judge, judge_answers, share_equal
from corelane.artifacts.manifest import (
    MANIFEST_NAME,
    Artifact,
    BucketFile,
    NumberFormat,
    check_files,
    find_artifact,
    read_artifact,
)
from corelane.engine.backends.neuron.chips import CHIPS
from corelane.errors import CompileFailed, EngineError
from corelane.settings import Settings


def verify_on_device(
    name: str, target: str, settings: Settings, report: Report, python: str = sys.executable
) -> Artifact:
    """Verify an artifact that was compiled without a device, and record that in its manifest; idempotent.

    Raises ArtifactRefused, CompileFailed if it is not the eager network, SetupError if there is no device.
    """
    if target not in CHIPS:
        raise CompileFailed(
            f"artifacts for {target} are verified when they are compiled; this is for {', '.join(CHIPS)}"
        )
    artifact = find_artifact(settings.artifact_root, name, target)
    check_files(artifact)
    manifest = artifact.manifest
    if manifest.verified:
        return artifact
    probes = read_expected(artifact)
    steps = FIRST_STEPS + 2 * len(probes)

    def step(text: str, done: int) -> None:
        report(text, done, steps)

    log = settings.data_dir.resolve() / "compile-logs" / f"{manifest.name}-{target}-verify.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        closing(Children(python, settings.environment())) as children,
        open_session(children, CHIPS[target], log, manifest.cores) as session,
    ):
        buckets, compared = verify_buckets(session, artifact.path, manifest.buckets, probes, manifest.dtype, step)
    verified = manifest.model_copy(
        update={
            "verified": True,
            "buckets": buckets,
            "tolerance": TOLERANCES[manifest.dtype].logit,
            "answers_equal": share_equal(compared),
            "files": {file: digest for file, digest in manifest.files.items() if file != EXPECTED_NAME},
        }
    )
    _replace_manifest(artifact, verified.model_dump_json(indent=2) + "\n")
    artifact.file(EXPECTED_NAME).unlink(missing_ok=True)
    report("done", steps, steps)
    return read_artifact(artifact.path)


def verify_buckets(
    session: Session,
    folder: Path,
    buckets: Sequence[BucketFile],
    probes: Sequence[Probe],
    dtype: NumberFormat,
    step: Step,
) -> tuple[list[BucketFile], list[Comparison]]:
    """Load each bucket, compare it with the eager network, and time it; raises CompileFailed or Disagreement."""
    verified, comparisons = [], []
    for position, (bucket, probe) in enumerate(zip(buckets, probes, strict=True)):
        step(f"verifying {bucket.rows}x{bucket.length}", FIRST_STEPS + len(buckets) + position)
        measured, compared = _verify_bucket(session, folder, bucket, probe, dtype)
        verified.append(measured)
        comparisons.append(compared)
    judge_answers(share_equal(comparisons), TOLERANCES[dtype].answers_equal, dtype)
    return verified, comparisons


def _verify_bucket(
    session: Session, folder: Path, bucket: BucketFile, probe: Probe, dtype: NumberFormat
) -> tuple[BucketFile, Comparison]:
    session.load(folder / bucket.file)
    try:
        compared = compare(probe, session.run, dtype, fewer_rows=False)
        judge(compared, dtype, f"bucket {bucket.rows}x{bucket.length}")
        seconds = []
        for _ in range(WARM_UP_PASSES + TIMED_PASSES):
            session.run(probe.batches[0])
            seconds.append(session.last_seconds)
    except EngineError as error:
        raise CompileFailed(f"the compiled model does not run: {error.detail}") from error
    return with_measures(bucket, compared, statistics.median(seconds[WARM_UP_PASSES:])), compared


def _replace_manifest(artifact: Artifact, text: str) -> None:
    """Write the manifest in one step: workers may be reading it."""
    aside = artifact.file(f".{MANIFEST_NAME}.{os.getpid()}")
    try:
        aside.write_text(text, encoding="utf-8")
        aside.replace(artifact.file(MANIFEST_NAME))
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise CompileFailed(f"cannot write {artifact.file(MANIFEST_NAME)}: {error.strerror}") from error
