"""Backend for TorchScript artifacts on one CPU core.

The only file that loads TorchScript: torch 2.13 marks it as deprecated (it works, and Neuron's trace yields it too),
so the warning is silenced here, for these calls alone.
"""

import ctypes
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch

from corelane.artifacts import Artifact, check_files
from corelane.engine.backend import Batch, Logits, Model
from corelane.engine.memory import available_bytes, check_room, resident_bytes
from corelane.engine.packing import settle
from corelane.errors import ArtifactRefused, CoreLost, LoadFailed, RunFailed


@contextmanager
def torchscript_warnings_silenced() -> Iterator[None]:
    """Silence the deprecation of TorchScript, and nothing else."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r".*torch\.jit\.", category=DeprecationWarning)
        warnings.filterwarnings("ignore", message=r".*torch\.jit\.", category=FutureWarning)
        yield


@dataclass(slots=True)
class CpuModel:
    """TorchScript modules by bucket length; buckets that share a file share a module."""

    artifact: Artifact
    modules: dict[int, Any]


class CpuBackend:
    """Runs TorchScript on the CPU cores this process is pinned to."""

    overlaps = False

    def load(self, artifact: Artifact) -> CpuModel:
        """Load every bucket, the largest first; what cannot fit into memory is refused before any is taken."""
        manifest = artifact.manifest
        if manifest.target != "cpu" or manifest.format != "torchscript":
            raise ArtifactRefused(f"{artifact.path} is for {manifest.target}/{manifest.format}, not cpu/torchscript")
        check_files(artifact)
        check_room(manifest.version_id, manifest.bytes, available_bytes())
        modules: dict[int, Any] = {}
        loaded: dict[str, Any] = {}
        for bucket in sorted(manifest.buckets, key=lambda bucket: -bucket.rows * bucket.length):
            try:
                if bucket.file not in loaded:
                    with torchscript_warnings_silenced():
                        scripted = torch.jit.load(artifact.file(bucket.file), map_location="cpu").eval()
                        loaded[bucket.file] = settle(scripted)
                modules[bucket.length] = loaded[bucket.file]
            except (RuntimeError, OSError, MemoryError) as error:
                raise LoadFailed(
                    f"{bucket.file} of {manifest.version_id} does not load: {_first_line(error)}"
                ) from error
        return CpuModel(artifact, modules)

    def run(self, model: Model, batch: Batch) -> Logits:
        """Run the module of the batch's length."""
        module = cast(CpuModel, model).modules.get(batch.bucket.length)
        if module is None:
            raise RunFailed(
                f"{model.artifact.manifest.version_id} has no bucket of length {batch.bucket.length} loaded"
            )
        try:
            with torch.inference_mode():
                start, end = module(
                    torch.from_numpy(batch.input_ids),
                    torch.from_numpy(batch.attention_mask),
                    torch.from_numpy(batch.token_type_ids),
                )
        except RuntimeError as error:
            raise RunFailed(f"forward pass of {batch.bucket} failed: {_first_line(error)}") from error
        return Logits(start.float().numpy(), end.float().numpy())

    def settle(self) -> None:
        """Give the memory that loading and warming up left behind back to the system (200 MB to 1.3 GB)."""
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)

    def unload(self, model: Model) -> None:
        """Drop the modules; the allocator returns their memory."""
        cast(CpuModel, model).modules.clear()

    def held_bytes(self) -> int:
        """What this process holds."""
        return resident_bytes()

    def health(self) -> None:
        """Multiply two small matrices and look at the product."""
        product = (torch.ones(4, 4) @ torch.ones(4, 4)).numpy()
        if not np.array_equal(product, np.full((4, 4), 4, dtype=np.float32)):
            raise CoreLost("this CPU multiplies wrongly; take the machine out of service")


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
