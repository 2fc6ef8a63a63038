"""The thread that loads and unloads the models of one core, one after the other, beside the drain.

Unloading goes first. A core that serves loads at low priority, and only when it has a turn: of a host's cores a share
loads at a time, so that the others go on at full speed, and memory for two versions is needed on these alone. A turn is
a lease in Redis, renewed by the heartbeat: it ends with its holder. What is wanted when a core starts needs none.

A model that does not load changes its own state alone; an accelerator that fails meanwhile, in a way its process cannot
outlive, ends the thread and, through ``lose``, the process.
"""

import gc
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress

from corelane.engine.loader import Loader
from corelane.errors import CoreBusy, CorelaneError, CoreLost, LoadFailed, RuntimeLost, Unavailable
from corelane.log import get_logger
from corelane.store.plans import Plans
from workers.models.desired import Wish
from workers.models.table import Holdings, Retired
from workers.models.memory import keeps_memory

log = get_logger(__name__)

#: Nice value of the thread that loads: beside a core that is busy it gets a tenth of it.
LOADER_NICE = 10

#: A model that was asked for, and whose load ended the process this often, is not loaded until it is asked for again.
MOST_DEATHS = 2

#: A load that takes longer than this gives its turn to others, in seconds: it may never end.
LONGEST_TURN_S = 600


class Loads:
    """What a core is yet to load and unload."""

    def __init__(
        self,
        holdings: Holdings,
        loader: Loader,
        make_plans: Callable[[], Plans],
        names: Callable[[str], Sequence[str]],
        lose: Callable[[CoreLost | RuntimeLost], None],
        pause_s: float,
    ) -> None:
        """``make_plans`` opens a view of the plan for one thread; ``names`` are what the settings mean a version by;
        ``lose`` is called on this thread; after ``pause_s`` Redis is asked again.
        """
        self._holdings = holdings
        self._loader = loader
        self._make_plans = make_plans
        self._plans = make_plans()
        self._names = names
        self._lose = lose
        self._pause_s = pause_s
        #: Set once a model left whose memory only the end of this process gives back.
        self.must_restart = False
        #: How many of the host's cores may load at a time.
        self.places = 1
        self._wishes: deque[Wish] = deque()
        self._retired: deque[Retired] = deque()
        self._at_once: set[Wish] = set()
        self._turn_since: float | None = None
        self._now: Wish | None = None
        self._work = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="loader", daemon=True)

    def start(self) -> None:
        """Begin with what there is to load."""
        self._thread.start()

    def add(self, wishes: Iterable[Wish], *, at_once: bool = False) -> None:
        """Load these in their turn; ``at_once`` needs none."""
        wishes = list(wishes)
        if at_once:
            self._at_once.update(wishes)
        self._wishes.extend(wishes)
        if wishes:
            self._work.set()

    def unload(self, retired: Iterable[Retired]) -> None:
        """Unload these, before anything is loaded."""
        self._retired.extend(retired)
        if self._retired:
            self._work.set()

    def renew_turn(self, plans: Plans) -> None:
        """Keep the turn of a load in progress, on the caller's connection; called with each heartbeat."""
        since = self._turn_since
        if since is not None and time.monotonic() - since < LONGEST_TURN_S:
            plans.take_load_turn(self.places)

    def close(self) -> None:
        """Begin nothing more; a load in progress is left to the end of the process."""
        self._closing = True
        self._work.set()
        self.absolve()

    def absolve(self) -> None:
        """Note that a load in progress is not what ends this process, so that it does not count against the model."""
        if (wish := self._now) is not None:
            with suppress(Unavailable), closing(self._make_plans()) as plans:
                plans.end_load(wish.version, wish.since_ms)

    def _run(self) -> None:
        # Left to the garbage collector, a connection may go in the wrong order, which Python warns of.
        with closing(self._plans):
            self._work_on()

    def _work_on(self) -> None:
        is_nice = False
        while not self._closing:
            self._work.wait()
            self._work.clear()
            while (self._retired or self._wishes) and not self._closing:
                if not is_nice and self._holdings.served():
                    is_nice = True
                    be_nice()
                try:
                    self._go_on()
                except (CoreLost, RuntimeLost) as error:
                    self._lose(error)
                    return
                except Exception:
                    # Without this thread no model would come or go any more: log, and go on.
                    log.exception("loader_broke")
            if not self.must_restart:
                self._surely(self._plans.end_restart_turn)

    def _go_on(self) -> None:
        """Unload or load one model, or wait for a turn to load."""
        if self._retired:
            self._unload(self._retired.popleft())
        elif not self._holdings.is_due(self._wishes[0]):
            self._at_once.discard(self._wishes.popleft())
        elif self._may_load(self._wishes[0]):
            wish = self._wishes.popleft()
            self._at_once.discard(wish)
            try:
                self._load(wish)
            finally:
                self._end_turn()
        else:
            self._work.wait(self._pause_s)
            self._work.clear()

    def _may_load(self, wish: Wish) -> bool:
        if wish in self._at_once or not self._holdings.served():
            return True
        try:
            if not self._plans.take_load_turn(self.places):
                return False
        except Unavailable as error:
            log.warning("store_unavailable", detail=error.detail)
            return False
        self._turn_since = time.monotonic()
        return True

    def _end_turn(self) -> None:
        if self._turn_since is not None:
            self._turn_since = None
            # Where Redis does not hear of it, the turn lapses.
            with suppress(Unavailable):
                self._plans.end_load_turn()

    def _load(self, wish: Wish) -> None:
        self._now = wish
        self._holdings.begin(wish)
        try:
            self._guarded(wish)
        except (CoreLost, RuntimeLost) as error:
            if isinstance(error, CoreBusy):
                self.absolve()
            raise
        except CorelaneError as error:
            self.fail(wish, error)
        except Exception as error:
            log.exception("model_load_broke", version=wish.version)
            self.fail(wish, LoadFailed(f"{wish.version} broke while it was loaded: {type(error).__name__}: {error}"))
        self._surely(lambda: self._plans.end_load(wish.version, wish.since_ms))
        self._now = None
        self._surely(self._plans.ring)

    def _guarded(self, wish: Wish) -> None:
        """Load one model, unless it keeps ending the process that tries."""
        deaths = 0

        def begin() -> None:
            nonlocal deaths
            deaths = self._plans.begin_load(wish.version, wish.since_ms)

        if wish.since_ms:
            self._surely(begin)
        if deaths >= MOST_DEATHS:
            raise LoadFailed(
                f"{wish.version} ended the process {deaths} times while it was loaded; load it again to retry"
            )
        runner = self._loader.load(wish.version, wish.manifest, renew=wish.reload_ms > 0)
        names = self._names(wish.version)
        self._surely(lambda: self._plans.announce(wish.version, runner.summary, names))
        if not self._holdings.put(wish, runner):
            runner.close()
            self._loader.settle()

    def fail(self, wish: Wish, error: CorelaneError) -> None:
        """Put down and log why a version does not load."""
        log.error("model_failed", model=wish.version, code=error.code, detail=error.detail)
        self._holdings.fail(wish, f"{error.code}: {error.detail}")

    def _unload(self, retired: Retired) -> None:
        """Unload one model and see that its memory is given back."""
        before = self._loader.held_bytes()
        try:
            retired.runner.close()
            gc.collect()
            self._loader.settle()
        finally:
            self._holdings.remove(retired.version)
        after = self._loader.held_bytes()
        freed = None if before is None or after is None else before - after
        restart = keeps_memory(before, after, retired.bytes)
        log.info("model_unloaded", version=retired.version, bytes=retired.bytes, freed=freed, restart=restart)
        if restart:
            self._surely(self._wait_for_restart)
            self.must_restart = True
            self._surely(self._plans.ring)

    def _wait_for_restart(self) -> None:
        while not self._closing and not self._plans.take_restart_turn():
            time.sleep(self._pause_s)

    def _surely(self, call: Callable[[], None]) -> None:
        """Call, again until Redis takes it or this process ends."""
        while not self._closing:
            try:
                call()
                return
            except Unavailable as error:
                log.warning("store_unavailable", detail=error.detail)
                time.sleep(self._pause_s)


def be_nice() -> None:
    """Lower this thread's priority, for good: a core that serves goes before one that loads."""
    with suppress(OSError):
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + LOADER_NICE)
