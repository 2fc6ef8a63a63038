"""Traced files in this process: torch_neuronx is for the Python that Corelane needs."""

import gc
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, cast

import torch

from corelane.engine.backends.cpu import run_module, torchscript_warnings_silenced
from corelane.engine.backends.neuron.packages import import_package
from corelane.engine.backends.protocol import Logits, WindowBatch
from corelane.engine.buckets import Bucket


class LocalModules:
    """Loads and runs TorchScript modules here. The runtime keeps the cores until this process ends."""

    def __init__(self, target: str) -> None:
        """Import the package of the target, which registers its operations; raises SetupError."""
        self._package = import_package(target)
        # The runtime polls with threads of its own; torch's would only be in their way.
        torch.set_num_threads(1)

    def load(self, path: Path, cores: int | None) -> Any:
        """Load a file. With ``cores`` it runs on that many of the process's cores, the first ones."""
        with torchscript_warnings_silenced(), self._placed(cores):
            return torch.jit.load(str(path)).eval()

    def _placed(self, cores: int | None) -> AbstractContextManager[Any]:
        """Place a model of one core on the first of several: by default buckets go round them all."""
        if cores is None:
            return nullcontext()
        context = (
            getattr(self._package, "neuron_cores_context", None) or self._package.experimental.neuron_cores_context
        )
        return cast(AbstractContextManager[Any], context(start_nc=0, nc_count=cores))

    def run(self, module: Any, batch: WindowBatch) -> Logits:
        """Run one forward pass."""
        return run_module(module, batch)

    def drop(self, modules: dict[Bucket, Any]) -> None:
        """Forget the modules, which frees their device memory."""
        modules.clear()
        gc.collect()

    def end(self) -> None:
        """Do nothing: the cores are free when this process ends, which its caller does next."""
