"""The models of one core: brought from what is wanted to what is loaded, without a pause for what is served meanwhile.

Three threads meet here, over one table (``holdings``). The heartbeat looks at the plan and decides; the loader
(``loads``) loads and warms up; the drain takes up what is loaded, and puts down what is to leave, between two batches.
A version that is to be loaded anew, because its artifact was compiled or calibrated again in place, goes on serving as
it was until what is new is warm and what was claimed before is answered; if it does not load, it goes on as it was.
"""

from collections.abc import Callable, Iterable
from typing import Any

from corelane.domain.aliases import DEFAULT_ALIAS
from corelane.artifacts.manifest import model_name
from corelane.engine.loader import Loader
from corelane.engine.runner import QueryRunner
from corelane.errors import CorelaneError, CoreLost, RuntimeLost, Unavailable
from corelane.log import get_logger
from corelane.domain.placement import load_places
from corelane.settings import Settings
from corelane.store.plans import Plan, Plans
from workers.models.desired import Changes, ModelState, Wish, decide, is_settled
from workers.models.table import TO_TAKE_UP, Entry, Holdings
from workers.models.loader import Loads

log = get_logger(__name__)


class CoreModels:
    """What a core holds, is to hold, and failed to load."""

    def __init__(
        self,
        settings: Settings,
        loader: Loader,
        make_plans: Callable[[], Plans],
        core: str,
        lose: Callable[[CoreLost | RuntimeLost], None],
    ) -> None:
        """``make_plans`` opens a view of the plan for one thread; ``lose`` is called on the loader's."""
        self._settings = settings
        self._loader = loader
        self._core = core
        self._plans = make_plans()
        self._holdings = Holdings()
        self._loads = Loads(self._holdings, loader, make_plans, self._names, lose, settings.heartbeat_s)
        self._own: dict[str, str] = {}
        self._unresolved: dict[str, str] = {}
        self._revision: str | None = None
        self._is_settled = False

    @property
    def runners(self) -> dict[str, QueryRunner]:
        """Runners by version; only the drain's thread touches them, or changes which there are."""
        return self._holdings.runners

    @property
    def must_restart(self) -> bool:
        """Set once a model left whose memory only the end of this process gives back."""
        return self._loads.must_restart

    def start(self) -> None:
        """Find out what the settings mean, and begin to load, all at once; raises Unavailable."""
        for name in dict.fromkeys(model_name(each) for each in (self._settings.model, *self._settings.models)):
            try:
                self._own[name] = self._loader.resolve(name, self._plans.named(name))
            except CorelaneError as error:
                if isinstance(error, Unavailable):
                    raise
                self._unresolved[name] = f"{error.code}: {error.detail}"
                log.error("model_failed", model=name, code=error.code, detail=error.detail)
        self._look("", at_once=True)
        self._loads.start()

    def look(self, revision: str) -> None:
        """Compare with the plan if it moved or anything depends on others, and begin to change what must."""
        self._look(revision, at_once=False)

    def _look(self, revision: str, *, at_once: bool) -> None:
        self._loads.renew_turn(self._plans)
        if revision == self._revision and self._is_settled:
            return
        before = self._holdings.standings()
        failed = [version for version, standing in before.items() if standing.state is ModelState.FAILED]
        plan = self._plans.read(sorted(before), failed)
        self._loads.places = load_places(self._core, plan.living, self._settings.load_share)
        self._apply(decide(plan, self._core, list(self._own.values()), before), plan, at_once=at_once)
        after = self._holdings.standings()
        # What was on its way when this was decided may have arrived since: then it was not decided about.
        self._revision, self._is_settled = revision, is_settled(plan, before) and is_settled(plan, after)
        if any(standing.state in TO_TAKE_UP for standing in after.values()):
            self._plans.ring()

    def announce_again(self, versions: Iterable[str]) -> None:
        """Make versions known that this core holds and Redis has lost, and ring the core; raises Unavailable."""
        for version in versions:
            summary = self._holdings.summary(version)
            if summary is not None:
                log.warning("model_announced_again", version=version)
                self._plans.announce(version, summary, self._names(version))
        self._plans.ring()

    def claimable(self) -> list[str]:
        """The versions this core claims work for."""
        return self._holdings.claimable()

    def served(self) -> list[str]:
        """The versions this core answers for: for moments more than it claims for."""
        return self._holdings.served()

    def describe(self) -> list[dict[str, Any]]:
        """Each version with its state, for the heartbeat."""
        unresolved = [Entry(Wish(name), ModelState.FAILED, reason) for name, reason in self._unresolved.items()]
        return [*(entry.shown() for entry in unresolved), *self._holdings.describe()]

    def take_up(self, is_busy: Callable[[str], bool]) -> bool:
        """Between two batches: serve what is loaded by now, put down what leaves and is not busy; if any.

        Called by the drain's thread alone.
        """
        changed, retired = self._holdings.take_up(is_busy)
        self._loads.unload(retired)
        return changed

    def close(self) -> None:
        """Stop loading and unload everything; a load in progress is left to the end of the process."""
        self._loads.close()
        self._holdings.close()
        self._plans.close()

    def absolve(self) -> None:
        """Note that a load in progress is not what ends this process, so that it does not count against the model."""
        self._loads.absolve()

    def _apply(self, changes: Changes, plan: Plan, *, at_once: bool) -> None:
        for wish in changes.lazy:
            self._offer(wish)
        self._loads.add(self._holdings.apply(changes), at_once=at_once)
        for version in changes.leave:
            self._plans.release(version)
        for version in (*changes.drain, *changes.leave):
            log.info("model_leaves", version=version, open_jobs=plan.open_jobs.get(version, 0))

    def _offer(self, wish: Wish) -> None:
        """Make a version known that is loaded once somebody asks for it."""
        try:
            summary = self._loader.describe(wish.version)
        except CorelaneError as error:
            self._loads.fail(wish, error)
            return
        self._plans.announce(wish.version, summary, [])
        self._holdings.offer(wish, summary)

    def _names(self, version: str) -> list[str]:
        """The names that this core's settings mean a version by."""
        default = model_name(self._settings.model)
        names = [name for name, own in self._own.items() if own == version]
        return [*names, *([DEFAULT_ALIAS] if default in names else [])]
