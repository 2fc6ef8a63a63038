"""The models of one core: brings them to the desired state, without a pause for the versions being served.

Three threads meet here, over one table. The heartbeat reads the plan and decides. The loader loads and warms up. The
drain takes up loaded versions, and puts down leaving ones, between two batches. A version may be loaded again because
its artifact was compiled or calibrated again in place. It is then served as before until the new runner is warm and all
earlier claims are answered. If it cannot be loaded again, it is still served as before.
"""

from collections.abc import Callable, Iterable
from typing import Any

from corelane.artifacts.manifest import model_name
from corelane.domain.aliases import DEFAULT_ALIAS
from corelane.errors import CorelaneError, CoreLost, RuntimeLost, Unavailable
from corelane.log import Outage, get_logger
from corelane.metrics.recorder import Recorder
from corelane.settings import Settings
from corelane.store.plans import Plan, Plans
from workers.models.desired import DesiredModel, decide, is_settled
from workers.models.life import ModelEvent, ModelState
from workers.models.loader import ModelLoader, log_failure
from workers.models.runners import Loader
from workers.models.table import ModelEntry, ModelTable

log = get_logger(__name__)


class CoreModels:
    """The models that a core holds, should hold, or failed to load."""

    def __init__(
        self,
        settings: Settings,
        loader: Loader,
        make_plans: Callable[[], Plans],
        core: str,
        lose: Callable[[CoreLost | RuntimeLost], None],
        outage: Outage,
        recorder: Recorder,
    ) -> None:
        """``make_plans`` opens a view of the plan for one thread; ``lose`` is called on the loader's thread."""
        self._settings = settings
        self._loader = loader
        self._core = core
        self._plans = make_plans()
        #: The versions and their runners. The drain takes up and puts down runners there.
        self.table = ModelTable()
        #: Loads and unloads models; knows whether this process must end to free memory.
        self.loads = ModelLoader(
            self.table, loader, make_plans, self._names, lose, outage, recorder, settings.heartbeat_s
        )
        self._own: dict[str, str] = {}
        self._unresolved: dict[str, str] = {}
        self._revision: str | None = None
        self._is_settled = False

    def start(self) -> None:
        """Resolve the models in the settings, and begin to load them all at once; raises Unavailable."""
        for name in dict.fromkeys(model_name(each) for each in (self._settings.model, *self._settings.models)):
            try:
                self._own[name] = self._loader.resolve(name, self._plans.named(name))
            except Unavailable:
                raise
            except CorelaneError as error:
                self._unresolved[name] = log_failure(name, error)
        self.follow("")
        self.loads.start()

    def follow(self, revision: str) -> None:
        """Read the plan if it has changed or versions come and go, and take the next steps; raises Unavailable."""
        if revision == self._revision and self._is_settled:
            return
        before = self.table.statuses()
        plan = self._plans.read(sorted(before))
        for event, desired in decide(plan, self._core, list(self._own.values()), before):
            self._take_step(event, desired, plan)
        # A load that ended since then was not part of the decision.
        self._revision = revision
        self._is_settled = is_settled(before) and is_settled(self.table.statuses())
        if self.table.has_to_swap():
            self._plans.ring()

    def _take_step(self, event: ModelEvent, desired: DesiredModel, plan: Plan) -> None:
        if self.table.handle(event, desired):
            if event in (ModelEvent.ASK, ModelEvent.RELOAD):
                self.loads.add(desired)
            elif event in (ModelEvent.DRAIN, ModelEvent.LEAVE):
                log.info("model_leaves", version=desired.version, open_jobs=plan.open_jobs.get(desired.version, 0))
        if event is ModelEvent.LEAVE:
            self._plans.release(desired.version)

    def announce_again(self, versions: Iterable[str]) -> None:
        """Announce versions that this core holds but Redis has lost, and ring the core; raises Unavailable."""
        for version in versions:
            summary = self.table.summary(version)
            if summary is not None:
                log.warning("model_announced_again", version=version)
                self._plans.announce(version, summary, self._names(version))
        self._plans.ring()

    def describe(self) -> list[dict[str, Any]]:
        """Return each version with its state, for the heartbeat."""
        unresolved = [
            ModelEntry(DesiredModel(name), ModelState.FAILED, reason) for name, reason in self._unresolved.items()
        ]
        return [*(entry.describe() for entry in unresolved), *self.table.describe()]

    def close(self) -> None:
        """Stop loading and unload everything. A load in progress ends with the process."""
        self.loads.close()
        self.table.close()
        self._plans.close()

    def _names(self, version: str) -> list[str]:
        """Return the names that this core's settings give a version."""
        default = model_name(self._settings.model)
        names = [name for name, own in self._own.items() if own == version]
        return [*names, *([DEFAULT_ALIAS] if default in names else [])]
