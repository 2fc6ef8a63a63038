"""The model loader: a thread that loads and unloads the models of one core, one at a time, while the drain runs.

Unloading goes first, then models with waiting work. A core that serves loads at low priority.

A model that does not load changes only its own state. An accelerator error that the process cannot survive ends the
thread and, through ``lose``, the process.
"""

import gc
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from typing import TypeVar

from corelane.errors import CoreBusy, CorelaneError, CoreLost, LoadFailed, RuntimeLost, Unavailable
from corelane.log import Outage, get_logger
from corelane.metrics.definitions import MODEL_LOAD_S, MODEL_LOADS
from corelane.metrics.recorder import Recorder
from corelane.store.plans import Plans
from workers.models.desired import DesiredModel
from workers.models.life import ModelEvent
from workers.models.runners import Loader
from workers.models.table import ModelTable, Retired

log = get_logger(__name__)

Found = TypeVar("Found")

#: Nice value of the loading thread: while the core is busy, the thread gets a tenth of the CPU.
LOADER_NICE = 10

#: A model whose load ended the process this many times is not loaded until it is asked for again.
MOST_DEATHS = 2

#: Less memory than this is not worth a restart, in bytes: an allocator may keep that much for itself.
WORTHWHILE_BYTES = 64 << 20

#: A runtime that frees less than this share of a model's size is considered to keep it.
GIVEN_BACK_SHARE = 0.5


class ModelLoader:
    """Loads and unloads models until the model table has nothing due."""

    def __init__(
        self,
        table: ModelTable,
        loader: Loader,
        make_plans: Callable[[], Plans],
        names: Callable[[str], Sequence[str]],
        lose: Callable[[CoreLost | RuntimeLost], None],
        outage: Outage,
        recorder: Recorder,
        pause_s: float,
    ) -> None:
        """``make_plans`` opens a view of the plan for one thread.

        ``names`` returns the names that the settings give a version. ``lose`` is called on the loader's thread.
        ``pause_s`` is the time until Redis is asked again.
        """
        self._table = table
        self._loader = loader
        self._make_plans = make_plans
        self._plans = make_plans()
        self._names = names
        self._lose = lose
        self._outage = outage
        self._recorder = recorder
        self._pause_s = pause_s
        #: Set once this process holds memory that is freed only at its end, and no other core's is being replaced.
        self.must_restart = False
        self._holds_too_much = False
        self._queue: deque[DesiredModel] = deque()
        self._retired: deque[Retired] = deque()
        self._now: DesiredModel | None = None
        self._work = threading.Event()
        self._closing = self._is_nice = False
        self._thread = threading.Thread(target=self._run, name="loader", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def add(self, desired: DesiredModel) -> None:
        """Load a version: after those that were added before, unless jobs wait for it."""
        self._queue.append(desired)
        self._work.set()

    def unload(self, retired: Iterable[Retired]) -> None:
        """Unload the ``retired`` models before anything is loaded."""
        self._retired.extend(retired)
        if self._retired:
            self._work.set()

    def replace_process(self) -> None:
        """Set ``must_restart`` as soon as it may be."""
        self._holds_too_much = True
        self._work.set()

    def close(self) -> None:
        """Begin no more loads. A load in progress ends with the process."""
        self._closing = True
        self._work.set()
        self.absolve()

    def absolve(self) -> None:
        """Note that the load in progress does not end this process, so that it does not count against the model."""
        if (desired := self._now) is not None:
            with suppress(Unavailable), closing(self._make_plans()) as plans:
                plans.end_load(desired.version, desired.since_ms)

    def _run(self) -> None:
        # If the garbage collector closes it, a connection may close in the wrong order, and Python warns.
        with closing(self._plans):
            while not self._closing:
                self._work.wait()
                self._work.clear()
                while (self._retired or self._queue) and not self._closing:
                    try:
                        self._go_on()
                    except (CoreLost, RuntimeLost) as error:
                        self._lose(error)
                        return
                    except Exception:
                        # Without this thread no model would be loaded or unloaded any more: log the error, and
                        # continue.
                        log.exception("loader_broke")
                if self._holds_too_much:
                    self._restart()
                    self._surely(self._plans.ring)
                if not self.must_restart:
                    self._surely(self._plans.end_restart_turn)

    def _go_on(self) -> None:
        """Unload or load one model."""
        if not self._is_nice and self._table.served():
            self._is_nice = True
            be_nice()
        if self._retired:
            self._unload(self._retired.popleft())
        elif self._table.is_due(desired := self._next()):
            self._load(desired)

    def _next(self) -> DesiredModel:
        """Take the next version off the queue: the first that jobs wait for, or else the first."""
        queue = list(self._queue.copy())
        versions = [desired.version for desired in queue]
        counts = self._surely(lambda: self._plans.open_jobs(versions)) if len(queue) > 1 else None
        chosen = next((desired for desired, jobs in zip(queue, counts or (), strict=False) if jobs > 0), queue[0])
        self._queue.remove(chosen)
        return chosen

    def _load(self, desired: DesiredModel) -> None:
        if not self._table.handle(ModelEvent.BEGIN, desired):
            return
        self._now = desired
        try:
            self._guarded(desired)
        except (CoreLost, RuntimeLost) as error:
            if isinstance(error, CoreBusy):
                self.absolve()
            raise
        except CorelaneError as error:
            self._fail(desired, error)
        except Exception as error:
            log.exception("model_load_broke", version=desired.version)
            broke = f"{desired.version} broke while it was loaded: {type(error).__name__}; the worker's log says more"
            self._fail(desired, LoadFailed(broke))
        self._surely(lambda: self._plans.end_load(desired.version, desired.since_ms))
        self._now = None
        self._surely(self._plans.ring)

    def _guarded(self, desired: DesiredModel) -> None:
        """Load one model, unless its load keeps ending the process."""
        version, since_ms = desired.version, desired.since_ms
        deaths = self._surely(lambda: self._plans.begin_load(version, since_ms)) if since_ms else None
        if (deaths or 0) >= MOST_DEATHS:
            raise LoadFailed(
                f"{desired.version} ended the process {deaths} times while it was loaded; load it again to retry"
            )
        with self._recorder.timed(MODEL_LOAD_S):
            runner = self._loader.load(desired.version, desired.manifest, renew=desired.reload_ms > 0)
        self._recorder.add(MODEL_LOADS, 1, desired.version, "loaded")
        names = self._names(desired.version)
        self._surely(lambda: self._plans.announce(desired.version, runner.summary, names))
        if not self._table.handle(ModelEvent.LOAD, desired, runner=runner):
            runner.close()
            self._loader.settle()

    def _fail(self, desired: DesiredModel, error: CorelaneError) -> None:
        self._recorder.add(MODEL_LOADS, 1, desired.version, "failed")
        self._table.handle(ModelEvent.FAIL, desired, reason=log_failure(desired.version, error))

    def _unload(self, retired: Retired) -> None:
        """Unload one model and check that its memory was freed."""
        before = self._loader.held_bytes()
        try:
            retired.runner.close()
            gc.collect()
            self._loader.settle()
            after = self._loader.held_bytes()
            freed = None if before is None or after is None else before - after
            restart = keeps_memory(before, after, retired.bytes)
            log.info("model_unloaded", version=retired.version, bytes=retired.bytes, freed=freed, restart=restart)
            if restart:
                self._restart()
        finally:
            self._table.handle(ModelEvent.UNLOAD, DesiredModel(retired.version))
        if restart:
            self._surely(self._plans.ring)

    def _restart(self) -> None:
        self._surely(self._wait_for_restart)
        self.must_restart = True

    def _wait_for_restart(self) -> None:
        while not self._closing and not self._plans.take_restart_turn():
            time.sleep(self._pause_s)

    def _surely(self, call: Callable[[], Found]) -> Found | None:
        """Call until Redis replies, and return the result; None if this process ends first."""
        while not self._closing:
            try:
                found = call()
                self._outage.served("loader")
                return found
            except Unavailable as error:
                self._outage.lost(error.detail, "loader")
                time.sleep(self._pause_s)
        return None


def log_failure(model: str, error: CorelaneError) -> str:
    """Log why a model does not load; return the reason for its state."""
    log.error("model_failed", model=model, code=error.code, detail=error.detail)
    return f"{error.code}: {error.detail}"


def be_nice() -> None:
    """Lower this thread's priority for good, as serving is more important than loading."""
    with suppress(OSError):
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + LOADER_NICE)


def keeps_memory(before_bytes: int | None, after_bytes: int | None, model_bytes: int) -> bool:
    """Return whether a process still holds an unloaded model's memory, which only the process's end would free.

    If the memory is unknown (None), assume that it does.
    """
    if model_bytes < WORTHWHILE_BYTES:
        return False
    if before_bytes is None or after_bytes is None:
        return True
    return before_bytes - after_bytes < GIVEN_BACK_SHARE * model_bytes
