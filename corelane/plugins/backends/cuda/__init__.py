"""Target ``cuda``: NVIDIA GPUs, each of which is one core."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from corelane.engine.backends.plugin import AddedTarget, TargetCore
from corelane.plugins.backends.cuda.gpus import find_gpus

if TYPE_CHECKING:
    from corelane.engine.backends.protocol import Backend
    from corelane.settings import Settings


class CudaTarget(AddedTarget):
    """NVIDIA GPUs."""

    name = "cuda"

    def cores(self, settings: "Settings") -> Sequence[TargetCore]:  # noqa: ARG002  # GPUs need none
        """Return the GPUs. A UUID does not depend on CUDA's order."""
        return [TargetCore(place, {"CUDA_VISIBLE_DEVICES": uuid}) for place, uuid in enumerate(find_gpus())]

    def open(self, settings: "Settings") -> "Backend":  # noqa: ARG002  # GPUs need none
        """Open the backend for the first GPU that this process sees."""
        from corelane.plugins.backends.cuda.backend import CudaBackend

        return CudaBackend()
