"""The models of one core: brought from what is wanted to what is loaded, without a pause for what is served meanwhile.

Three threads meet here. The heartbeat looks at the plan and decides; a loader, at low priority once anything is served,
loads and warms up one model after the other; the drain takes up what is loaded, and puts down what is to leave, between
two batches, so that a runner is only ever used by the drain. A model that does not load changes its own state alone;
an accelerator that fails meanwhile, in a way its process cannot outlive, ends the loader and, through ``lose``, the
process.
"""

import gc
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from corelane.aliases import DEFAULT_ALIAS
from corelane.artifacts import model_name
from corelane.engine.loading import Loader
from corelane.engine.runner import QueryRunner
from corelane.errors import CoreBusy, CorelaneError, CoreLost, LoadFailed, RuntimeLost, Unavailable
from corelane.log import get_logger
from corelane.settings import Settings
from corelane.store.plans import Plan, Plans
from workers.changes import CLAIMING, Changes, ModelState, Standing, Wish, decide, is_settled
from workers.memory import keeps_memory

log = get_logger(__name__)

#: Nice value of the thread that loads: beside a core that is busy it gets a tenth of it.
LOADER_NICE = 10

#: States that the drain has to do something about.
TO_TAKE_UP = (ModelState.LOADED, ModelState.LEAVING)

#: A model that was asked for, and whose load ended the process this often, is not loaded until it is asked for again.
MOST_DEATHS = 2


@dataclass(slots=True)
class Entry:
    """A version on this core; its runner once loaded."""

    wish: Wish
    state: ModelState
    reason: str | None = None
    runner: QueryRunner | None = None
    summary: Mapping[str, Any] | None = None


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
        self._lose = lose
        self._make_plans = make_plans
        self._plans = make_plans()
        self._loading_plans = make_plans()
        #: Runners by version; only the drain's thread touches them, or changes which there are.
        self.runners: dict[str, QueryRunner] = {}
        #: Set once a model left whose memory only the end of this process gives back.
        self.must_restart = False
        self._entries: dict[str, Entry] = {}
        self._own: dict[str, str] = {}
        self._unresolved: dict[str, str] = {}
        self._revision: str | None = None
        self._is_settled = False
        self._now_loading: Wish | None = None
        self._queue: deque[Wish | Entry] = deque()
        self._lock = threading.Lock()
        self._work = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._load_on, name="loader", daemon=True)

    def start(self) -> None:
        """Find out what the settings mean, and begin to load; raises Unavailable."""
        for name in dict.fromkeys(model_name(each) for each in (self._settings.model, *self._settings.models)):
            try:
                self._own[name] = self._loader.resolve(name, self._plans.named(name))
            except CorelaneError as error:
                if isinstance(error, Unavailable):
                    raise
                self._unresolved[name] = f"{error.code}: {error.detail}"
                log.error("model_failed", model=name, code=error.code, detail=error.detail)
        self.look("")
        self._thread.start()

    def look(self, revision: str) -> None:
        """Compare with the plan if it moved or anything depends on others, and begin to change what must."""
        if revision == self._revision and self._is_settled:
            return
        held = self.states()
        plan = self._plans.read(sorted(held))
        self._apply_changes(decide(plan, self._core, list(self._own.values()), held), plan)
        standings = self.states()
        self._revision, self._is_settled = revision, is_settled(plan, standings)
        if any(standing.state in TO_TAKE_UP for standing in standings.values()):
            self._plans.ring()

    def states(self) -> dict[str, Standing]:
        """How this core stands with each version."""
        with self._lock:
            return self._standings()

    def claimable(self) -> list[str]:
        """The versions this core claims work for."""
        with self._lock:
            return [version for version, entry in self._entries.items() if entry.state in CLAIMING]

    def describe(self) -> list[dict[str, Any]]:
        """Each version with its state, for the heartbeat."""
        with self._lock:
            unresolved = [
                {"version": name, "state": str(ModelState.FAILED), "reason": reason, **_shown(None)}
                for name, reason in self._unresolved.items()
            ]
            return unresolved + [
                {"version": version, "state": str(entry.state), "reason": entry.reason, **_shown(entry.summary)}
                for version, entry in self._entries.items()
            ]

    def take_up(self, is_busy: Callable[[str], bool]) -> bool:
        """Between two batches: serve what is loaded by now, put down what leaves and is not busy; if any.

        Called by the drain's thread alone.
        """
        with self._lock:
            coming = [entry for entry in self._entries.values() if entry.state is ModelState.LOADED]
            going = [
                entry
                for version, entry in self._entries.items()
                if entry.state is ModelState.LEAVING and version in self.runners and not is_busy(version)
            ]
            for entry in coming:
                if entry.runner is not None:
                    self.runners[entry.wish.version] = entry.runner
                entry.state = ModelState.READY
            for entry in going:
                del self.runners[entry.wish.version]
        self._queue.extend(going)
        if going:
            self._work.set()
        return bool(coming or going)

    def close(self) -> None:
        """Stop loading and unload everything; a load in progress is left to the end of the process."""
        self._closing = True
        self._work.set()
        self.absolve()
        for runner in self.runners.values():
            runner.close()
        self.runners.clear()

    def absolve(self) -> None:
        """Note that a load in progress is not what ends this process, so that it does not count against the model."""
        if (wish := self._now_loading) is not None:
            with suppress(Unavailable):
                self._make_plans().end_load(wish.version, wish.since_ms)

    def _standings(self) -> dict[str, Standing]:
        return {version: Standing(entry.state, entry.wish.since_ms) for version, entry in self._entries.items()}

    def _apply_changes(self, changes: Changes, plan: Plan) -> None:
        for wish in changes.lazy:
            self._offer(wish)
        with self._lock:
            for wish in changes.load:
                summary = self._entries[wish.version].summary if wish.version in self._entries else None
                self._entries[wish.version] = Entry(wish, ModelState.LOADING, summary=summary)
                self._queue.append(wish)
            for version in changes.forget:
                del self._entries[version]
            for versions, state in (
                (changes.keep, ModelState.READY),
                (changes.drain, ModelState.DRAINING),
                (changes.leave, ModelState.LEAVING),
            ):
                for version in versions:
                    self._entries[version].state = state
        for version in changes.leave:
            self._plans.release(version)
        for version in (*changes.drain, *changes.leave):
            log.info("model_leaves", version=version, open_jobs=plan.open_jobs.get(version, 0))
        if changes.load:
            self._work.set()

    def _offer(self, wish: Wish) -> None:
        """Make a version known that is loaded once somebody asks for it."""
        try:
            summary = self._loader.describe(wish.version)
        except CorelaneError as error:
            self._fail(wish, error)
            return
        self._plans.announce(wish.version, summary, [])
        with self._lock:
            self._entries[wish.version] = Entry(wish, ModelState.LAZY, summary=summary)

    def _load_on(self) -> None:
        """The loader's thread: loads and unloads, one model after the other, for as long as there are any."""
        is_nice = False
        while True:
            self._work.wait()
            self._work.clear()
            while self._queue and not self._closing:
                if not is_nice and self.claimable():
                    is_nice = True
                    be_nice()
                task = self._queue.popleft()
                try:
                    if isinstance(task, Wish):
                        self._load(task)
                    else:
                        self._unload(task)
                except (CoreLost, RuntimeLost) as error:
                    self._lose(error)
                    return
                except Exception:
                    # Without this thread no model would come or go any more: log, and go on.
                    log.exception("loader_broke")
            if not self.must_restart:
                self._surely(self._loading_plans.end_restart_turn)
            if self._closing:
                return

    def _load(self, wish: Wish) -> None:
        self._now_loading = wish
        try:
            self._guarded(wish)
        except (CoreLost, RuntimeLost) as error:
            if isinstance(error, CoreBusy):
                self.absolve()
            raise
        except CorelaneError as error:
            self._fail(wish, error)
        except Exception as error:
            log.exception("model_load_broke", version=wish.version)
            self._fail(wish, LoadFailed(f"{wish.version} broke while it was loaded: {type(error).__name__}: {error}"))
        self._surely(lambda: self._loading_plans.end_load(wish.version, wish.since_ms))
        self._now_loading = None
        self._surely(self._loading_plans.ring)

    def _guarded(self, wish: Wish) -> None:
        """Load one model, unless it keeps ending the process that tries."""
        deaths = 0

        def begin() -> None:
            nonlocal deaths
            deaths = self._loading_plans.begin_load(wish.version, wish.since_ms)

        if wish.since_ms:
            self._surely(begin)
        if deaths >= MOST_DEATHS:
            raise LoadFailed(
                f"{wish.version} ended the process {deaths} times while it was loaded; load it again to retry"
            )
        runner = self._loader.load(wish.version, wish.manifest)
        aliases = self._aliases(wish.version)
        self._surely(lambda: self._loading_plans.announce(wish.version, runner.summary, aliases))
        with self._lock:
            entry = self._entries[wish.version]
            entry.runner, entry.summary, entry.state = runner, runner.summary, ModelState.LOADED

    def _surely(self, call: Callable[[], None]) -> None:
        """Call, again until Redis takes it or this process ends."""
        while not self._closing:
            try:
                call()
                return
            except Unavailable as error:
                log.warning("store_unavailable", detail=error.detail)
                time.sleep(self._settings.heartbeat_s)

    def _aliases(self, version: str) -> list[str]:
        """The names that this core's settings mean a version by."""
        default = model_name(self._settings.model)
        names = [name for name, own in self._own.items() if own == version]
        return [*names, *([DEFAULT_ALIAS] if default in names else [])]

    def _fail(self, wish: Wish, error: CorelaneError) -> None:
        reason = f"{error.code}: {error.detail}"
        log.error("model_failed", model=wish.version, code=error.code, detail=error.detail)
        with self._lock:
            self._entries[wish.version] = Entry(wish, ModelState.FAILED, reason)

    def _unload(self, entry: Entry) -> None:
        """Unload one model and see that its memory is given back."""
        before, size = self._loader.held_bytes(), int((entry.summary or {}).get("bytes", 0))
        try:
            if entry.runner is not None:
                entry.runner.close()
                entry.runner = None
            gc.collect()
            self._loader.settle()
        finally:
            with self._lock:
                del self._entries[entry.wish.version]
        after = self._loader.held_bytes()
        freed = None if before is None or after is None else before - after
        restart = keeps_memory(before, after, size)
        log.info("model_unloaded", version=entry.wish.version, bytes=size, freed=freed, restart=restart)
        if restart:
            self._surely(self._wait_for_turn)
            self.must_restart = True
            self._surely(self._loading_plans.ring)

    def _wait_for_turn(self) -> None:
        while not self._closing and not self._loading_plans.take_restart_turn():
            time.sleep(self._settings.heartbeat_s)


def be_nice() -> None:
    """Lower this thread's priority, for good: a core that serves goes before one that loads."""
    with suppress(OSError):
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + LOADER_NICE)


def _shown(summary: Mapping[str, Any] | None) -> dict[str, Any]:
    summary = summary or {}
    return {"buckets": summary.get("buckets", []), "bytes": summary.get("bytes", 0), "dtype": summary.get("dtype")}
