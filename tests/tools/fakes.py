"""A Backend that computes nothing: its logits are a fixed function of each row's tokens. Real in every other way.
And a Redis that only says its version.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from corelane.artifacts.manifest import Artifact, check_files
from corelane.engine.backends.protocol import Logits, Model, WindowBatch
from corelane.errors import ArtifactRefused, RunFailed

#: Rows holding this token fail; for tests of isolation.
POISON_ID = 666


@dataclass
class FixedModel:
    artifact: Artifact
    loaded: bool = True


class FixedBackend:
    """Points at the token with the largest id, and says null is worth nothing."""

    overlaps = False
    rows_share_kernels = True

    def load(self, artifact: Artifact) -> FixedModel:
        if artifact.manifest.target != "cpu":
            raise ArtifactRefused(f"{artifact.path} is for another target")
        check_files(artifact)
        return FixedModel(artifact)

    def run(self, model: Model, batch: WindowBatch) -> Logits:
        if not isinstance(model, FixedModel) or not model.loaded:
            raise RunFailed("the model is not loaded")
        if batch.bucket.length not in {bucket.length for bucket in model.artifact.manifest.buckets}:
            raise RunFailed(f"no bucket of length {batch.bucket.length}")
        if (batch.input_ids == POISON_ID).any():
            raise RunFailed("a row is poisoned")
        visible = (np.where(batch.attention_mask == 1, batch.input_ids, 0) / 1000).astype(np.float32)
        visible[:, 0] = 0
        return (visible, visible.copy())

    def settle(self) -> None:
        return None

    def unload(self, model: Model) -> None:
        if isinstance(model, FixedModel):
            model.loaded = False

    def held_bytes(self) -> int:
        return 0

    def health(self) -> None:
        return None


def save_server_stand_in(folder: Path, version: str) -> Path:
    """Write an executable that says it is some Redis, and cannot read the file it is given."""
    path = folder / "redis-server"
    path.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "{version}" && exit 0\necho "Bad file format"\nexit 1\n')
    path.chmod(0o755)
    return path
