"""A handler on one core: loaded from its package, and fed like any model."""

from collections.abc import Sequence
from typing import Self, cast

from corelane.artifacts.manifest import Artifact, check_file
from corelane.domain.dispatch import LEAST_TOKENS
from corelane.engine.backends.protocol import Backend
from corelane.engine.buckets import Bucket
from corelane.engine.memory import resident_bytes
from corelane.engine.runner import Runner, ServedModel
from corelane.engine.task import UNLIMITED, RunnerLimits, Tokenized
from corelane.errors import ArtifactRefused, CorelaneError, LoadFailed
from corelane.log import bind_lines
from corelane.tasks.handler.engine.batches import HandlerModel, ItemToRun, explain, ids_of
from corelane.tasks.handler.engine.items import HandlerEngine
from corelane.tasks.handler.engine.source import IN_PLACE, digest_of, facts_of, import_handler, require_allowed
from corelane.tasks.handler.engine.thread import HandlerThread
from corelane.tasks.handler.interface import Handler, HandlerCore


class HandlerRunner(Runner):
    """Answers items with one handler. Not thread-safe."""

    def __init__(self, served: ServedModel, model: HandlerModel, limits: RunnerLimits = UNLIMITED) -> None:
        engine = HandlerEngine(model)
        super().__init__(engine, served, model.run, limits=limits, unload=model.thread.close)
        self.most_tokens = model.handler.max_batch_units or self.most_tokens
        self.max_memory_mb = model.handler.max_memory_mb

    @classmethod
    def open(
        cls,
        backend: Backend,  # noqa: ARG003  # a handler has its own way to the device
        artifact: Artifact,
        limits: RunnerLimits = UNLIMITED,
    ) -> Self:
        """Import and set up the handler of an artifact; raises ArtifactRefused, LoadFailed or RuntimeLost."""
        manifest, facts = artifact.manifest, artifact.manifest.facts
        for name in manifest.files:
            check_file(artifact, name)
        path, digest = str(facts.get("handler", "")), str(facts.get("digest", ""))
        require_allowed(path, limits.handlers)
        if digest_of(path) != digest:
            raise ArtifactRefused(
                f"the package of {path} is not the one that {manifest.version_id} was made of: package it again with "
                f"`corelane models package {path} --name {manifest.name}`, and load the version that gives"
            )
        before, thread = resident_bytes(), HandlerThread(manifest.version_id)
        try:
            handler = thread.call(lambda: set_up(path, digest, artifact, limits))
        except BaseException:
            thread.close()
            raise
        summary = artifact.summary(None) | {"bytes": max(0, resident_bytes() - before)}
        model = HandlerModel(manifest.version_id, handler, thread, limits)
        ladder = (HandlerEngine(model).bucket,)
        served = ServedModel(manifest.name, manifest.version_id, summary, ladder, manifest.task)
        return cls(served, model, limits)

    def warm_up(self) -> None:
        """Do nothing: ``setup`` has warmed it up."""

    def waiting_tokens(self, most_per_item: int) -> int:
        """Return the units that wait; an item counts at least as many as were estimated."""
        waiting = (progress.waiting.tokens for progress in self._progress.values())
        return sum(min(max(LEAST_TOKENS, units), most_per_item) for units in waiting if units)

    def _ladder_of(self, item: Tokenized) -> Sequence[Bucket]:
        return (cast(ItemToRun, item).bucket,)


def set_up(path: str, digest: str, artifact: Artifact, limits: RunnerLimits) -> Handler:
    """Import a handler and set it up; raises ArtifactRefused, LoadFailed or RuntimeLost."""
    manifest = artifact.manifest
    bind_lines(**(ids := ids_of(manifest.version_id, limits)))
    kind = import_handler(path, digest, in_place=bool(manifest.facts.get(IN_PLACE)))
    found = facts_of(path, digest, kind)
    if changed := [name for name, fact in found.items() if manifest.facts.get(name) != fact]:
        raise ArtifactRefused(f"{path} has another {changed[0]} than {manifest.version_id}: package it again")
    device = "cuda:0" if manifest.target == "cuda" else "cpu"
    try:
        handler = kind()
        handler.setup(HandlerCore(device, limits.core.index, artifact.path))
    except CorelaneError:
        raise
    except (Exception, SystemExit) as error:
        said = explain(kind, f"setup of {path}", error, ids, frames=limits.handler_frames)
        raise LoadFailed(said) from error
    return handler
