"""Runs first in every process of a service that has this folder on PYTHONPATH: makes its forward passes slower.

After each pass the process computes for a tenth of the time that the pass took. The product has no hook for this: the
class is changed once its module was imported.
"""

import sys
import time
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

MODULE = "corelane.engine.backends.cpu"

#: Of the time of a pass.
SLOWER = 0.10


class SlowerLoader(Loader):
    """Runs a module as its own loader does, then changes the backend."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Make the module."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, and have each pass take longer."""
        self._loader.exec_module(module)
        run = module.CpuBackend.run

        def run_slower(backend: Any, *given: Any) -> Any:
            began_s = time.perf_counter()
            logits = run(backend, *given)
            until_s = time.perf_counter() + SLOWER * (time.perf_counter() - began_s)
            while time.perf_counter() < until_s:
                pass
            return logits

        module.CpuBackend.run = run_slower


class Slower(MetaPathFinder):
    """Finds the module of the backend, and no other."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where the module is; None for all others."""
        if fullname != MODULE or (spec := PathFinder.find_spec(fullname, path, target)) is None or spec.loader is None:
            return None
        spec.loader = SlowerLoader(spec.loader)
        return spec


sys.meta_path.insert(0, Slower())
