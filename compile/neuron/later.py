"""``corelane verify``: what was compiled on another machine is compared with the eager network here, on its device."""

import os
import sys

from compile.neuron.checks import check_buckets, judge_all
from compile.neuron.children import Children
from compile.neuron.expected import EXPECTED_NAME, read_expected
from compile.neuron.session import open_session
from compile.plan import FIRST_STEPS, Report
from compile.verify import TOLERANCES, share_equal
from corelane.artifacts.manifest import MANIFEST_NAME, Artifact, check_files, find_artifact, read_artifact
from corelane.engine.backends.neuron.chips import CHIPS
from corelane.errors import CompileFailed
from corelane.settings import Settings


def verify_here(name: str, target: str, settings: Settings, report: Report, python: str = sys.executable) -> Artifact:
    """Verify an artifact that was compiled without a device, and write that down; one that is verified is left alone.

    Raises ArtifactRefused, CompileFailed if it is not the eager network, SetupError if there is no device.
    """
    if target not in CHIPS:
        raise CompileFailed(
            f"artifacts for {target} are verified when they are compiled; this is for {', '.join(CHIPS)}"
        )
    artifact = find_artifact(settings.artifact_root, name, target)
    check_files(artifact)
    manifest, chip = artifact.manifest, CHIPS[target]
    if manifest.verified:
        return artifact
    probes = read_expected(artifact)
    steps = FIRST_STEPS + 2 * len(probes)

    def step(text: str, done: int) -> None:
        report(text, done, steps)

    log = settings.data_dir.resolve() / "compile-logs" / f"{manifest.name}-{target}-verify.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    children = Children(python, settings.environment())
    try:
        with open_session(children, chip, log, manifest.cores) as session:
            checked = check_buckets(session, artifact.path, manifest.buckets, probes, manifest.dtype, step)
    finally:
        children.stop()
    judge_all(checked, manifest.dtype)
    verified = manifest.model_copy(
        update={
            "verified": True,
            "buckets": [each.bucket for each in checked],
            "tolerance": TOLERANCES[manifest.dtype].logit,
            "answers_equal": share_equal([each.findings for each in checked]),
            "files": {file: digest for file, digest in manifest.files.items() if file != EXPECTED_NAME},
        }
    )
    _replace_manifest(artifact, verified.model_dump_json(indent=2) + "\n")
    artifact.file(EXPECTED_NAME).unlink(missing_ok=True)
    report("done", steps, steps)
    return read_artifact(artifact.path)


def _replace_manifest(artifact: Artifact, text: str) -> None:
    """In one step: workers may be reading it."""
    aside = artifact.file(f".{MANIFEST_NAME}.{os.getpid()}")
    try:
        aside.write_text(text, encoding="utf-8")
        aside.replace(artifact.file(MANIFEST_NAME))
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise CompileFailed(f"cannot write {artifact.file(MANIFEST_NAME)}: {error.strerror}") from error
