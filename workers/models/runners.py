"""Turns names of models into runners that are loaded, healthy and warm, all on one backend of one core.

TorchScript runs code when it is loaded. So only artifacts below the artifact root, or fetched from the remote root into
its cache, are loaded, and only if their files have the digests of their manifest.
"""

import gc
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from corelane.artifacts.finding import find_artifact
from corelane.artifacts.instructions import AUTO_KIND, host_kind
from corelane.artifacts.manifest import (
    COMPILE_HERE,
    Artifact,
    artifact_folders,
    artifact_path,
    check_manifest,
    missing_instructions,
    outgrown,
)
from corelane.artifacts.remote import RemoteRoot
from corelane.engine.backends.plugin import added_targets
from corelane.engine.backends.protocol import Backend
from corelane.engine.memory import resident_bytes
from corelane.engine.null import NullRunner
from corelane.engine.runner import Runner, open_backend
from corelane.engine.task import UNLIMITED, RunnerLimits
from corelane.errors import ArtifactRefused, CorelaneError
from corelane.log import get_logger
from corelane.settings import Settings
from corelane.tasks.registry import TASKS

log = get_logger(__name__)

#: Kernels come and go between the blocks of batches and cached tokens, and leave gaps which the allocator keeps: up to
#: 180 MB. Gaps are returned to the system once the process has grown by this much, or by half as much when it is idle.
#: A lone item then takes some 12 MB again.
LOOSE_BYTES = 32 << 20

#: Returning memory takes 10 to 30 ms, and batches take as long to get some of it back. So it is done at most this
#: often, in seconds.
TRIM_EVERY_S = 5.0


@dataclass(slots=True)
class Loader:
    """Loads models for one core. Artifacts that are not below ``root`` are fetched from ``remote``.

    Of a version's artifacts the one that suits ``cpu_kind`` best is loaded, or the one with the requested digest. The
    backend is opened by ``settings``; None means the settings of this process.
    """

    target: str
    root: Path
    remote: RemoteRoot | None = None
    limits: RunnerLimits = UNLIMITED
    null_batch_s: float = 0.0
    cpu_kind: str = AUTO_KIND
    settings: Settings | None = None
    _backend: Backend | None = field(default=None, init=False)
    _settled_bytes: int = field(default=0, init=False)
    _settled_at: float = field(default=0.0, init=False)

    def resolve(self, name: str, known: str | None = None) -> str:
        """Return the version that a model's name means here: ``known`` if this host has it, else the newest.

        Raises ArtifactRefused if there is none.
        """
        if self.target == "null":
            return f"{name}@0" if name in TASKS else NullRunner.version
        if known is not None:
            with suppress(ArtifactRefused):
                return self._find(known).manifest.version_id
        try:
            return find_artifact(self.root, name, self.target, kind=self.cpu_kind).manifest.version_id
        except ArtifactRefused:
            newest = None if self.remote is None else self.remote.newest(name, self.target)
            if newest is None:
                raise
            return newest

    def load(self, version: str, manifest: str = "", *, renew: bool = False) -> Runner:
        """Return a runner, healthy and warm in every bucket; a failed load leaves nothing behind.

        ``manifest`` is the digest its manifest must have, empty for any; ``renew`` asks the remote root whether it has
        a newer one. Raises ArtifactRefused or LoadFailed, SetupError if there is no such backend here, RuntimeLost or
        CoreLost if the process or the core can do no more.
        """
        started = time.monotonic()
        if self.target == "null":
            return NullRunner(version, self.null_batch_s)
        artifact = self._find(version, manifest, renew=renew)
        check_manifest(artifact, manifest)
        self._compare_cpus(artifact)
        if not artifact.manifest.verified:
            log.warning("model_unverified", version=version, advice="run `corelane models verify` where it is served")
        if self._backend is None:
            self._backend = open_backend(self.target, self.settings)
            # The libraries stay for good. Otherwise a garbage collection after a model has left would scan them too.
            # That takes 0.1 s and blocks the answering thread, for far longer if the collecting thread has a low
            # priority.
            gc.freeze()
        runner = Runner.open(self._backend, artifact, self.limits)
        try:
            self._backend.health()
            runner.warm_up()
        except BaseException:
            with suppress(CorelaneError):
                runner.close()
            raise
        self.settle()
        log.info("model_ready", version=runner.version, seconds=round(time.monotonic() - started, 2))
        return runner

    def settle(self) -> None:
        """Return unused memory to the system."""
        if self._backend is not None:
            self._backend.settle()
            self._settled_bytes, self._settled_at = resident_bytes(), time.monotonic()

    def trim(self, *, is_idle: bool) -> None:
        """Return unused memory to the system if it has become much. Called with every heartbeat."""
        if self.target != "cpu" or time.monotonic() - self._settled_at < TRIM_EVERY_S:
            return
        if resident_bytes() > self._settled_bytes + (LOOSE_BYTES // 2 if is_idle else LOOSE_BYTES):
            self.settle()

    def held_bytes(self) -> int | None:
        """Return the bytes held in the memory for models; None if unloading may free none of it."""
        return resident_bytes() if self._backend is None else self._backend.held_bytes()

    def device_bytes(self) -> int | None:
        """Return the bytes held on a device that has its own memory and reports it; else None."""
        return self._backend.held_bytes() if self._backend is not None and self.target in added_targets() else None

    def _find(self, version: str, manifest: str = "", *, renew: bool = False) -> Artifact:
        try:
            return find_artifact(self.root, version, self.target, kind=self.cpu_kind, manifest=manifest)
        except ArtifactRefused:
            name, _, digits = version.partition("@")
            here = artifact_folders(artifact_path(self.root, name, digits, self.target).parent, self.target)
            if self.remote is None or here:
                raise
            return self.remote.find(version, self.target, manifest, renew=renew, kind=self.cpu_kind)

    def _compare_cpus(self, artifact: Artifact) -> None:
        """Log if an artifact was made for another kind of CPU, on which another dtype may be the fastest."""
        manifest, kind = artifact.manifest, host_kind(self.cpu_kind)
        if missing := missing_instructions(manifest):
            log.warning("artifact_of_another_cpu", version=manifest.version_id, lacks=missing, advice=COMPILE_HERE)
        elif outgrown(manifest, kind):
            was = manifest.cpu_kind
            log.info("artifact_of_an_earlier_cpu", version=manifest.version_id, was=was, here=kind, advice=COMPILE_HERE)
