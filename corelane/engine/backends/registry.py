"""Chooses a backend by its target. The backend's heavy imports happen only then."""

from corelane.engine.backends.added import added_targets, all_targets
from corelane.engine.backends.neuron.chips import CHIPS
from corelane.engine.backends.protocol import Backend
from corelane.errors import SetupError
from corelane.settings import NEURON_PYTHON


def open_backend(target: str, memory_bytes: int | None = None, neuron_python: str = NEURON_PYTHON) -> Backend:
    """Open the backend for a target, with its heavy imports; raises SetupError if it is not available here.

    ``memory_bytes`` is the device memory that models may take, if the device has its own. ``neuron_python`` is the
    interpreter that has the package of inf1.
    """
    if target == "cpu":
        from corelane.engine.backends.cpu import CpuBackend

        return CpuBackend()
    if target in CHIPS:
        from corelane.engine.backends.neuron.backend import NeuronBackend

        return NeuronBackend(target, memory_bytes, neuron_python)
    if (added := added_targets().get(target)) is not None:
        return added.open()
    raise SetupError(f"no backend runs artifacts of target {target!r}; this build has: {', '.join(all_targets())}")
