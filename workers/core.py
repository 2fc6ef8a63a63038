"""The process of one core: models loaded and warm, a heartbeat, and the connection it claims work on.

Start order: load, health check, warm up, announce, take back what a dead predecessor held, ring. Stop order: finish
the batch, say good-bye (another core is rung for what waits), close. A model that does not
load leaves the process up, with its reason in the heartbeat: others keep serving.

An accelerator's error that this process cannot outlive ends it, with a note for the one that Celery starts instead:
that one goes on, waits and tries again, or stays up without touching the core, and says that it is out of service.
"""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NoReturn

import orjson

from corelane.artifacts import model_name
from corelane.engine.loading import load_runners
from corelane.engine.runner import QueryRunner, RunnerLimits
from corelane.errors import CoreBusy, CoreLost, RuntimeLost, SetupError, Unavailable
from corelane.lanes import Core
from corelane.log import get_logger
from corelane.metrics import CORE_COUNTERS
from corelane.settings import Settings
from corelane.store.dispatch import Dispatch
from corelane.store.fleet import DEFAULT_ALIAS, Announcer
from corelane.store.upkeep import Upkeep
from workers.faults import FaultRecord, after_fault, after_start
from workers.speed import SpeedMeter

log = get_logger(__name__)

#: The busy ratio is taken over this many heartbeats.
BUSY_BEATS = 10

#: How often a process that waits for its core looks whether it has to stop, in seconds.
LOOK_S = 0.2

#: The exit status of a process that its core's errors ended.
FAULT_STATUS = 70


class CoreProcess:
    """What one worker child holds. The drain uses it from the main thread, the heartbeat from its own."""

    def __init__(self, settings: Settings, core: Core, bell: str, record: FaultRecord | None = None) -> None:
        self.settings = settings
        self.core = core
        self.bell = bell
        self.runners: dict[str, QueryRunner] = {}
        self.dispatch = Dispatch(settings, str(core))
        self.state = "starting"
        self.reasons: list[str] = []
        #: The leases being worked on; the heartbeat renews them unless one batch takes too long.
        self.leases: list[str] = []
        self.running_since: float | None = None
        self.busy_s = 0.0
        self.retired = False
        self._record = record or FaultRecord()
        self._history = self._record.load()
        self.meter = SpeedMeter()
        self._beats: deque[tuple[float, float]] = deque(maxlen=BUSY_BEATS)
        self._announcer = Announcer(settings, str(core))
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._beat_on, name="heartbeat", daemon=True)

    @property
    def versions(self) -> list[str]:
        """The versions this core holds."""
        return list(self.runners)

    def start(self, should_stop: Callable[[], bool]) -> None:
        """Load and warm every model, then begin to live in public; all of it in its time, if the core had errors."""
        if self._history.out:
            self.state, self.reasons = "out_of_service", [self._history.reason]
        self._thread.start()
        if not self._history.out:
            self._wait_out(should_stop)
            if should_stop():
                return
            self._load()
        self._join(should_stop)

    def _wait_out(self, should_stop: Callable[[], bool]) -> None:
        """Leave the core alone for as long as its history asks."""
        until = time.monotonic() + self._history.pause_s
        if self._history.pause_s:
            self.state, self.reasons = "waiting", [self._history.reason]
            log.warning("core_waits", core=str(self.core), seconds=self._history.pause_s, reason=self._history.reason)
        while time.monotonic() < until and not should_stop():
            time.sleep(LOOK_S)
        self.state = "starting"

    def _load(self) -> None:
        settings = self.settings
        names = (settings.model, *settings.models)
        limits = RunnerLimits(settings.latency_target_s, settings.context_cache_tokens)
        # Before the accelerator's libraries are loaded, which read them once.
        os.environ.update(self._history.environment)  # noqa: TID251
        try:
            self.runners, self.reasons = load_runners(
                settings.target,
                settings.artifact_root,
                names,
                settings.null_batch_s,
                limits,
                settings.device_memory_bytes,
            )
        except (CoreLost, RuntimeLost) as error:
            self.end_process(error)
        except SetupError as error:
            self.reasons = [f"{error.code}: {error.detail}"]
            log.error("core_failed", core=str(self.core), code=error.code, detail=error.detail)
        self.state = "idle" if self.runners else "failed"
        if self.runners:
            self._history = after_start(self._history)
            self._record.save(self._history)

    def end_process(self, error: CoreLost | RuntimeLost) -> NoReturn:
        """Note what happened for the process that follows, say so, and end this one at once: only that frees a core."""
        now = time.monotonic()
        history = self._history = after_fault(self._history, error, now, self.settings.core_restarts)
        self._record.save(history)
        self.retired = True
        self.state = "out_of_service" if history.out else "waiting" if isinstance(error, CoreBusy) else "restarting"
        self.reasons = [history.reason]
        say = log.warning if isinstance(error, CoreBusy) else log.error
        say(f"core_{self.state}", core=str(self.core), code=error.code, detail=history.reason)
        try:
            self.dispatch.leave(self.versions, self.bell)
            self._beat()
        except Unavailable as unavailable:
            log.warning("left_without_good_bye", detail=unavailable.detail)
        os._exit(FAULT_STATUS)

    def hold(self, leases: Sequence[str]) -> None:
        """The leases that are being worked on; the heartbeat renews them."""
        self.leases = list(leases)
        self.state = "busy" if leases else "idle"

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

    def return_claims(self) -> None:
        """Put back all that this core has claimed and not answered, with one attempt more."""
        Upkeep(self.settings, self.bell).return_own(str(self.core))

    def close(self) -> None:
        """Leave the fleet and give everything back."""
        self._closing.set()
        self._thread.join(timeout=self.settings.heartbeat_s + 1)
        try:
            self.dispatch.leave(self.versions, self.bell)
        except Unavailable as error:
            log.warning("left_without_good_bye", detail=error.detail)
        for runner in self.runners.values():
            runner.close()

    def _join(self, should_stop: Callable[[], bool]) -> None:
        """Announce, take back what a predecessor held, ring; again until Redis has taken it all, or it has to stop."""
        default = model_name(self.settings.model)
        while not self._closing.is_set() and not should_stop():
            try:
                for runner in self.runners.values():
                    aliases = [runner.name, *([DEFAULT_ALIAS] if runner.name == default else [])]
                    with self._lock:
                        self._announcer.publish_model(runner.version, runner.summary, aliases)
                self._beat()
                self.return_claims()
                if self.runners:
                    self.dispatch.wake(self.bell)
                return
            except Unavailable as error:
                log.warning("store_unavailable", detail=error.detail)
                self._closing.wait(self.settings.heartbeat_s)

    def _beat_on(self) -> None:
        lost = False
        while not self._closing.wait(self.settings.heartbeat_s):
            try:
                self._beat()
                lost = False
            except Unavailable as error:
                if not lost:
                    log.warning("store_unavailable", detail=error.detail)
                lost = True
            except Exception:
                # Without a heartbeat this core's leases lapse and its work is lost to it: log, and go on beating.
                log.exception("heartbeat_failed")

    def _beat(self) -> None:
        since = self.running_since
        stuck = since is not None and time.monotonic() - since > self.settings.stuck_s
        versions = [] if self.retired else self.versions
        with self._lock:
            self._announcer.beat(self._fields(), versions, [] if stuck else self.leases, self.meter.speed())

    def _fields(self) -> dict[str, object]:
        work = [runner.work for runner in list(self.runners.values())]
        return {
            "state": self.state,
            "pid": os.getpid(),
            "node": self.core.node,
            "queue": self.core.queue,
            "cpus": ",".join(map(str, sorted(os.sched_getaffinity(0)))),
            "versions": orjson.dumps([] if self.retired else self.versions),
            "reasons": orjson.dumps(self.reasons),
            "busy": round(self._busy_ratio(), 3),
            "restarts": self._history.restarts,
            **{name: sum(getattr(w, name) for w in work) for name in CORE_COUNTERS},
        }

    def _busy_ratio(self) -> float:
        since, now = self.running_since, time.monotonic()
        busy = self.busy_s + (now - since if since is not None else 0.0)
        self._beats.append((now, busy))
        then, before = self._beats[0]
        return min(1.0, max(0.0, (busy - before) / (now - then))) if now > then else 0.0
