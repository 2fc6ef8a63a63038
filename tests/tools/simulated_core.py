"""A worker's core in this process, whose runners are given and not loaded: for tests of the drain."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from corelane.artifacts.manifest import model_name
from corelane.domain.dispatch import Core
from corelane.engine.runner import Runner
from corelane.plugin import installed
from corelane.settings import Settings
from workers.core.observer import ObserverFactory
from workers.core.process import CoreProcess
from workers.models.runners import Loader
from workers.plugin import WorkerPlugin


class GivenRunners(Loader):
    """Loads what it was given."""

    def __init__(self, runners: Mapping[str, Runner]) -> None:
        super().__init__("null", Path())
        self._runners = dict(runners)

    def resolve(self, name: str, known: str | None = None) -> str:  # what is given is known
        """Return the version whose name the settings hold."""
        return next(version for version in self._runners if model_name(version) == name)

    def load(self, version: str, manifest: str = "", *, renew: bool = False) -> Runner:  # it has none
        """Return the runner given."""
        return self._runners[version]


class SimulatedCore(CoreProcess):
    """A worker's core whose runners are given, not loaded."""

    def __init__(
        self,
        settings: Settings,
        core: Core,
        bell: str,
        runners: Mapping[str, Runner],
        observers: Sequence[ObserverFactory] = (),
    ) -> None:
        first, *others = runners
        settings = settings.model_copy(update={"model": first, "models": tuple(others)})
        observers = [*observers, *(plugin.observers for plugin in installed(WorkerPlugin))]
        super().__init__(settings, core, bell, loader=GivenRunners(runners), observers=observers)

    def begin_life(self) -> None:
        """Announce, take back, ring and beat, as a real one does; until all it was given is taken up."""
        self.start(lambda: False)
        while len(self.versions) < len(self.settings.models) + 1:
            self.swap_runners(lambda _: False)
            time.sleep(0.01)
