"""The plugin interface of the workers: what a plugin can add to worker processes."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from corelane.plugin import Plugin

if TYPE_CHECKING:
    from workers.core.observer import CoreObserver, ObservedCore
    from workers.loops.loop import Loop, LoopTools


class WorkerPlugin(Plugin):
    """A plugin that adds to the processes of workers, the keeper and the webhook sender."""

    def loops(self, queue: str, tools: "LoopTools") -> "Iterable[Loop]":
        """Return the plugin's loops for the process that reads this queue (``corelane.domain.dispatch``)."""
        return ()

    def observers(self, core: "ObservedCore") -> "Iterable[CoreObserver]":
        """Return the plugin's observers of a core's work, for one core's process."""
        return ()
