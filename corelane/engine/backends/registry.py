"""The choice of a backend by its target. Its heavy imports come with it, and not before."""

from corelane.engine.backends.neuron.chips import CHIPS
from corelane.engine.backends.protocol import Backend
from corelane.errors import SetupError
from corelane.settings import NEURON_PYTHON


def open_backend(target: str, memory_bytes: int | None = None, neuron_python: str = NEURON_PYTHON) -> Backend:
    """Open the backend for a target, with its heavy imports; raises SetupError if it is not available here.

    ``memory_bytes`` is the device memory that models may take, where the device has its own. ``neuron_python`` has the
    package of inf1.
    """
    if target == "cpu":
        from corelane.engine.backends.cpu import CpuBackend

        return CpuBackend()
    if target in CHIPS:
        from corelane.engine.backends.neuron.backend import NeuronBackend

        return NeuronBackend(target, memory_bytes, neuron_python)
    if target == "cuda":
        from corelane.engine.backends.cuda import CudaBackend

        return CudaBackend()
    raise SetupError(f"no backend runs artifacts of target {target!r}; this build has: cpu, {', '.join(CHIPS)}, cuda")
