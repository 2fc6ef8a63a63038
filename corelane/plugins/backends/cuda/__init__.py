"""Target ``cuda``: NVIDIA GPUs, each of which is one core."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from corelane.engine.backends.plugin import AddedTarget
from corelane.plugins.backends.cuda.gpus import find_gpus

if TYPE_CHECKING:
    from corelane.engine.backends.protocol import Backend


class CudaTarget(AddedTarget):
    """NVIDIA GPUs."""

    name = "cuda"

    def cores(self) -> Sequence[Mapping[str, str]]:
        """Return the variables that show one GPU to a process. A UUID does not depend on CUDA's order."""
        return [{"CUDA_VISIBLE_DEVICES": uuid} for uuid in find_gpus()]

    def open(self) -> "Backend":
        """Open the backend for the first GPU that this process sees."""
        from corelane.plugins.backends.cuda.backend import CudaBackend

        return CudaBackend()
