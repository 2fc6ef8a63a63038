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
        self._loaded_mb: float | None = None
        self._is_over = False

    def note_models(self) -> None:
        """Note that models came or went; the next batch begins with what they take."""
        self._loaded_mb, self._is_over = None, False

    def batch_started(self, batch: CoreBatch) -> None:
        """Note the memory before the first batch since models came or went."""
        if self._loaded_mb is None and self._bound(batch) is not None:
            self._loaded_mb = tree_bytes() / MB

    def batch_finished(self, batch: CoreBatch) -> None:
        """Have the process replaced if it is above its bound. While models load, their memory comes and goes."""
        bound, loaded = self._bound(batch), self._loaded_mb
        if bound is None or loaded is None or self._is_over or self._models.table.is_loading():
            return
        if (held := tree_bytes() / MB) <= bound:
            return
        self._is_over = True
        sizes = {"version": batch.runner.version, "held_mb": round(held), "max_memory_mb": bound}
        if loaded > bound:
            advice = "the loaded models take more than max_memory_mb: raise it, or unload a model"
            log.warning("memory_bound_too_low", **sizes, loaded_mb=round(loaded), advice=advice)
            return
        log.warning("memory_above_bound", **sizes)
        self._models.loads.replace_process()

    def _bound(self, batch: CoreBatch) -> float | None:
        return min((most for most in (self._most_mb, batch.runner.max_memory_mb) if most is not None), default=None)
