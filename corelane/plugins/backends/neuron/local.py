"""Traced files in this process: torch_neuronx runs in the Python version that Corelane needs."""

import gc
from pathlib import Path
from typing import Any

import torch

from corelane.engine.backends.cpu import run_module, torchscript_warnings_silenced
from corelane.engine.backends.protocol import Logits, WindowBatch
from corelane.engine.buckets import Bucket
from corelane.plugins.backends.neuron.device_process import load_on
from corelane.plugins.backends.neuron.packages import import_package


class LocalModules:
    """Loads and runs TorchScript modules here. The runtime keeps the cores until this process ends."""

    def __init__(self, target: str) -> None:
        """Import the package of the target, which registers its operations; raises SetupError."""
        self._package = import_package(target)
        # The runtime polls with its own threads; torch's threads would compete with them.
        torch.set_num_threads(1)

    def load(self, path: Path, cores: int | None) -> Any:
        """Load a file. ``cores`` means the first of several cores; None means all."""
        with torchscript_warnings_silenced():
            return load_on(self._package, torch, str(path), cores)

    def run(self, module: Any, batch: WindowBatch) -> Logits:
        """Run one forward pass."""
        return run_module(module, batch)

    def drop(self, modules: dict[Bucket, Any]) -> None:
        """Drop the modules, which frees their device memory."""
        modules.clear()
        gc.collect()

    def end(self) -> None:
        """Do nothing: the caller ends this process next, and that frees the cores."""
