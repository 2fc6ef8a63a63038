"""The bound of a core's memory: after the batch that leaves its process above, the process is replaced.

The bound is that of the settings, or the batch's model's own if that is lower. Child processes count too. The core
finishes the slices that it has begun, hands back the others, and waits until no other core is being replaced.

A bound below what the loaded models take can never be met. Then a warning says so, and the process stays.
"""

from corelane.log import get_logger
from corelane.settings import Settings
from workers.core.device import tree_bytes
from workers.core.observer import CoreBatch, CoreObserver
from workers.models.serving import CoreModels

log = get_logger(__name__)

MB = 1000**2


class MemoryBound(CoreObserver):
    """Compares the memory of a core's process with its bound after each batch."""

    def __init__(self, settings: Settings, models: CoreModels) -> None:
        self._most_mb = settings.max_memory_mb
        self._models = models
        #: What the process held when its models last came or went.
        self._loaded_mb = 0.0
        self._is_over = False

    def note_models(self) -> None:
        """Note what the process holds, as models came or went."""
        self._loaded_mb, self._is_over = tree_bytes() / MB, False

    def batch_finished(self, batch: CoreBatch) -> None:
        """Have the process replaced if it is above its bound."""
        if bounds := [most for most in (self._most_mb, batch.runner.max_memory_mb) if most is not None]:
            self._compare(batch, min(bounds))

    def _compare(self, batch: CoreBatch, bound: float) -> None:
        # While models load, their memory comes and goes.
        if self._is_over or self._models.table.is_loading() or (held := tree_bytes() / MB) <= bound:
            return
        self._is_over, loaded = True, self._loaded_mb
        sizes = {"version": batch.runner.version, "held_mb": round(held), "max_memory_mb": bound}
        if loaded > bound:
            advice = "the loaded models take more than max_memory_mb: raise it, or unload a model"
            log.warning("memory_bound_too_low", **sizes, loaded_mb=round(loaded), advice=advice)
            return
        log.warning("memory_above_bound", **sizes)
        self._models.loads.replace_process()
