"""Verify compiled buckets, loaded from their files, on a core of this machine, by the same rules as on the CPU.

A build does so at its end. ``corelane models verify`` does so later, for an artifact compiled on a machine without a
device. The files run in a device process, as files for inf1 do in service: a core is free again only when the process
that took it ends.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from compile.manifests import with_measures
from compile.model.probes import Probe
from compile.plan import FIRST_STEPS, Report, Step
from compile.verify import TOLERANCES, BucketComparison, compare, judge, judge_results, share_equal
from corelane.artifacts.finding import find_artifact
from corelane.artifacts.manifest import MANIFEST_NAME, Artifact, BucketFile, NumberFormat, check_files, read_artifact
from corelane.engine.backends.protocol import Logits, WindowBatch
from corelane.errors import CompileFailed, EngineError, RunFailed, last_line
from corelane.plugins.backends.neuron.chips import NeuronChip
from corelane.plugins.backends.neuron.compiling.children import Children, explain
from corelane.plugins.backends.neuron.compiling.expected import EXPECTED_NAME, read_expected
from corelane.plugins.backends.neuron.devices import show_cores
from corelane.plugins.backends.neuron.errors import DeviceGone
from corelane.plugins.backends.neuron.remote import RemoteModules
from corelane.settings import Settings

#: torch_neuron prints this if it runs a model without a device: the output has the right shape and no content.
NOT_CALCULATED = "NOT CALCULATED"


class DeviceSession:
    """Loads one file at a time in a device process, and runs batches on it."""

    def __init__(self, chip: NeuronChip, modules: RemoteModules, log: Path) -> None:
        self._chip, self._modules, self._log = chip, modules, log
        self._loaded: dict[str, Any] = {}

    def load(self, path: Path) -> None:
        """Load a file in place of the previous one; raises CompileFailed or SetupError."""
        try:
            self._modules.drop(self._loaded)
            self._loaded["file"] = self._modules.load(path, None)
        except RuntimeError as error:
            failed, what = {"text": str(error)}, f"{path.name}, when it was loaded"
            raise explain(0, failed, self._chip, what, self._log) from None

    def run(self, batch: WindowBatch) -> Logits:
        """Run one forward pass; raises RunFailed if it fails, CompileFailed if it hangs or computes nothing."""
        try:
            return self._modules.run(self._loaded["file"], batch)
        except DeviceGone as error:
            # Some files compiled on another machine ran once and never again.
            raise CompileFailed(f"a pass of {batch.bucket}: {error}; its output: {self._log}") from None
        except RuntimeError as error:
            if NOT_CALCULATED in str(error):
                raise CompileFailed(
                    f"this machine has no {self._chip.target} device: a pass gives shapes and no logits. Add "
                    "--cpu-backend to compile without one, and run `corelane models verify` where it will serve"
                ) from None
            raise RunFailed(f"a pass of {batch.bucket} failed: {last_line(error)}") from None


@contextmanager
def open_session(children: Children, chip: NeuronChip, log: Path, cores: int = 1) -> Iterator[DeviceSession]:
    """Start a session for the block. It uses the first cores of this machine, unless the environment names others."""
    environment = {"NEURON_RT_VISIBLE_CORES": show_cores(range(cores)), **children.environment}
    with log.open("wb") as stream:
        modules = RemoteModules(chip.target, children.python, environment, inherits=False, output=stream)
    try:
        yield DeviceSession(chip, modules, log)
    finally:
        modules.close()


def verify_on_device(
    name: str, chip: NeuronChip, settings: Settings, report: Report, python: str = sys.executable
) -> Artifact:
    """Verify an artifact that was compiled without a device, and record that in its manifest; idempotent.

    Raises ArtifactRefused, CompileFailed if its logits are not the eager network's, SetupError if there is no device.
    """
    artifact = find_artifact(settings.artifact_root, name, chip.target)
    check_files(artifact)
    manifest = artifact.manifest
    if manifest.verified:
        return artifact
    probes = read_expected(artifact)
    steps = FIRST_STEPS + 2 * len(probes)

    def step(text: str, done: int) -> None:
        report(text, done, steps)

    log = settings.data_dir.resolve() / "compile-logs" / f"{manifest.name}-{chip.target}-verify.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with (
        closing(Children(python, settings.environment())) as children,
        open_session(children, chip, log, manifest.cores) as session,
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
    session: DeviceSession,
    folder: Path,
    buckets: Sequence[BucketFile],
    probes: Sequence[Probe],
    dtype: NumberFormat,
    step: Step,
) -> tuple[list[BucketFile], list[BucketComparison]]:
    """Load each bucket, compare it with the eager network, and time it; raises CompileFailed or Disagreement."""
    verified, comparisons = [], []
    for position, (bucket, probe) in enumerate(zip(buckets, probes, strict=True)):
        step(f"verifying {bucket.rows}x{bucket.length}", FIRST_STEPS + len(buckets) + position)
        measured, compared = _verify_bucket(session, folder, bucket, probe, dtype)
        verified.append(measured)
        comparisons.append(compared)
    judge_results(share_equal(comparisons), TOLERANCES[dtype].equal, dtype)
    return verified, comparisons


def _verify_bucket(
    session: DeviceSession, folder: Path, bucket: BucketFile, probe: Probe, dtype: NumberFormat
) -> tuple[BucketFile, BucketComparison]:
    session.load(folder / bucket.file)
    try:
        compared = compare(probe, session.run, dtype, fewer_rows=False)
        judge(compared, dtype, f"bucket {bucket.rows}x{bucket.length}")
    except EngineError as error:
        raise CompileFailed(f"the compiled model does not run: {error.detail}") from error
    return with_measures(bucket, compared), compared


def _replace_manifest(artifact: Artifact, text: str) -> None:
    """Write the manifest in one step: workers may be reading it."""
    aside = artifact.file(f".{MANIFEST_NAME}.{os.getpid()}")
    try:
        aside.write_text(text, encoding="utf-8")
        aside.replace(artifact.file(MANIFEST_NAME))
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise CompileFailed(f"cannot write {artifact.file(MANIFEST_NAME)}: {error.strerror}") from error
