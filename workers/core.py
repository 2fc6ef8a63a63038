"""The process of one core: its models, a heartbeat, and the connection it claims work on.

Start order: take back what a dead predecessor held, look at what is wanted; then, for each model, load, health check,
warm up, announce, ring, claim. Stop order: finish the batch, say good-bye (another core is rung for what waits), close.
A model that does not load leaves the process up, with its reason in the heartbeat: others keep serving.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

import orjson

from corelane.engine.loading import Loader
from corelane.engine.runner import QueryRunner, RunnerLimits, Work
from corelane.errors import Unavailable
from corelane.lanes import Core
from corelane.log import get_logger
from corelane.metrics import CORE_COUNTERS
from corelane.remote import RemoteRoot
from corelane.settings import Settings
from corelane.store.dispatch import Dispatch
from corelane.store.fleet import Announcer
from corelane.store.plans import Plans
from corelane.store.upkeep import Upkeep
from workers.changes import ModelState
from workers.memory import resident_bytes
from workers.models import CoreModels
from workers.speed import SpeedMeter

log = get_logger(__name__)

#: The busy ratio is taken over this many heartbeats.
BUSY_BEATS = 10


class CoreProcess:
    """What one worker child holds. The drain uses it from the main thread, the heartbeat from its own."""

    def __init__(self, settings: Settings, core: Core, bell: str, loader: Loader | None = None) -> None:
        """``loader`` stands in for the one that the settings make."""
        self.settings = settings
        self.core = core
        self.bell = bell
        self.models = CoreModels(
            settings, loader or make_loader(settings), lambda: Plans(settings, str(core), bell), str(core)
        )
        self.dispatch = Dispatch(settings, str(core))
        #: The leases being worked on; the heartbeat renews them unless one batch takes too long.
        self.leases: list[str] = []
        self.running_since: float | None = None
        self.busy_s = 0.0
        self.retired = False
        self.meter = SpeedMeter()
        self._has_looked = False
        #: What runners have done, those that left included: a core's counters only grow.
        self._work: dict[int, Work] = {}
        self._beats: deque[tuple[float, float]] = deque(maxlen=BUSY_BEATS)
        self._announcer = Announcer(settings, str(core))
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._beat_on, name="heartbeat", daemon=True)

    @property
    def runners(self) -> dict[str, QueryRunner]:
        """What answers here, by version; the drain's thread alone touches it."""
        return self.models.runners

    @property
    def versions(self) -> list[str]:
        """The versions this core claims work for."""
        return self.models.claimable()

    @property
    def state(self) -> str:
        """starting, idle, busy or failed: the last only where nothing that is wanted could be loaded."""
        if self.leases:
            return "busy"
        if self.versions:
            return "idle"
        states = {model["state"] for model in self.models.describe()}
        if not self._has_looked or states & {ModelState.LOADING, ModelState.LOADED}:
            return "starting"
        return "failed" if ModelState.FAILED in states else "idle"

    def start(self) -> None:
        """Begin to live in public, and to load what is wanted; models that are ready are rung for."""
        self._thread.start()
        while not self._closing.is_set():
            try:
                Upkeep(self.settings, self.bell).return_own(str(self.core))
                self.dispatch.wake(self.bell)
                self.models.start()
                self._has_looked = True
                return
            except Unavailable as error:
                log.warning("store_unavailable", detail=error.detail)
                self._closing.wait(self.settings.heartbeat_s)

    def take_up(self, is_busy: Callable[[str], bool]) -> None:
        """Between two batches: begin to serve what is loaded by now, let go of what is to leave."""
        if self.models.take_up(is_busy):
            self._beat()

    def hold(self, leases: Sequence[str]) -> None:
        """The leases that are being worked on; the heartbeat renews them."""
        self.leases = list(leases)

    def begin(self) -> float:
        """Note that a batch begins; the time, for ``end``."""
        self.running_since = time.monotonic()
        return self.running_since

    def end(self, began: float) -> None:
        """Note that it is over, well or not."""
        now = time.monotonic()
        self.busy_s += now - began
        self.running_since = None

    def retire(self) -> None:
        """Take no more: others are rung from now on."""
        self.retired = True
        self.dispatch.leave(self.versions, self.bell)

    def close(self) -> None:
        """Leave the fleet and give everything back."""
        self._closing.set()
        self._thread.join(timeout=self.settings.heartbeat_s + 1)
        try:
            self.dispatch.leave(self.versions, self.bell)
        except Unavailable as error:
            log.warning("left_without_good_bye", detail=error.detail)
        self.models.close()

    def _beat_on(self) -> None:
        lost = False
        while not self._closing.wait(self.settings.heartbeat_s):
            try:
                revision = self._beat()
                if self._has_looked:
                    self.models.look(revision)
                lost = False
            except Unavailable as error:
                if not lost:
                    log.warning("store_unavailable", detail=error.detail)
                lost = True
            except Exception:
                # Without a heartbeat this core's leases lapse and its work is lost to it: log, and go on beating.
                log.exception("heartbeat_failed")

    def _beat(self) -> str:
        """One heartbeat; the revision of the plan."""
        since = self.running_since
        stuck = since is not None and time.monotonic() - since > self.settings.stuck_s
        versions = [] if self.retired else self.versions
        with self._lock:
            return self._announcer.beat(self._fields(), versions, [] if stuck else self.leases, self.meter.speed())

    def _fields(self) -> dict[str, object]:
        models = self.models.describe()
        for runner in list(self.runners.values()):
            self._work[id(runner.work)] = runner.work
        work = list(self._work.values())
        return {
            "state": self.state,
            "pid": os.getpid(),
            "node": self.core.node,
            "queue": self.core.queue,
            "cpus": ",".join(map(str, sorted(os.sched_getaffinity(0)))),
            "versions": orjson.dumps(self.versions),
            "models": orjson.dumps(models),
            "reasons": orjson.dumps([model["reason"] for model in models if model["reason"]]),
            "memory": resident_bytes(),
            "busy": round(self._busy_ratio(), 3),
            **{name: sum(getattr(w, name) for w in work) for name in CORE_COUNTERS},
        }

    def _busy_ratio(self) -> float:
        since, now = self.running_since, time.monotonic()
        busy = self.busy_s + (now - since if since is not None else 0.0)
        self._beats.append((now, busy))
        then, before = self._beats[0]
        return min(1.0, max(0.0, (busy - before) / (now - then))) if now > then else 0.0


def make_loader(settings: Settings) -> Loader:
    """What loads a core's models, by the settings."""
    remote = None if settings.artifacts_url is None else RemoteRoot(settings.artifacts_url, settings.fetched_root)
    limits = RunnerLimits(settings.latency_target_s, settings.context_cache_tokens)
    return Loader(settings.target, settings.artifact_root, remote, limits, settings.null_batch_s)
