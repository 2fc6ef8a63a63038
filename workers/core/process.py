"""The process of one core: its models, a heartbeat, and the connection over which it claims work.

Start order: wait as long as earlier errors of the core require; take back what a dead predecessor held, and read which
models are wanted; then, for each model, load, health check, warm up, announce, ring, claim. Stop order: finish the
batch, leave the fleet (another core is rung for waiting work), close. If a model does not load, the process stays, with
the reason in its heartbeat: other models are still served.

An accelerator error that this process cannot survive, in a batch or while a model loads, ends the process with a note
for the next one, which Celery starts. The next process continues, or waits and tries again, or leaves the core alone
and reports it out of service.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NoReturn

import orjson

from corelane.artifacts.instructions import host_kind
from corelane.artifacts.remote import RemoteRoot
from corelane.domain.dispatch import Core
from corelane.engine.task import RunnerLimits
from corelane.errors import CoreBusy, CoreLost, RuntimeLost, Unavailable
from corelane.log import Outage, PassedOver, get_logger
from corelane.metrics.liveness import LivenessFile
from corelane.settings import Settings
from corelane.store.dispatch import Dispatch
from corelane.store.file_storage import options_for
from corelane.store.fleet import Announcer, BeatReply
from corelane.store.link.library import read_library
from corelane.store.metrics import ProcessMetrics
from corelane.store.plans import Plans
from corelane.store.plugin import file_fetcher
from corelane.store.upkeep import Upkeep
from workers.core.device import open_device
from workers.core.duplicate_host import DuplicateHostWatch
from workers.core.faults import FaultHistory, FaultRecord, after_begin, after_end, after_fault, after_start
from workers.core.heartbeat import Vitals
from workers.core.measures import CoreMetrics, JobLog
from workers.core.memory import MemoryBound
from workers.core.observer import CoreObserver, ObservedCore, ObserverFactory, Observers
from workers.models.life import ModelState
from workers.models.runners import Loader
from workers.models.serving import CoreModels

log = get_logger(__name__)

#: Most time of one batch of several rows, in seconds: a new item waits for the batch before it. With AVX2 alone a row
#: of 384 tokens takes as long, and reading the weights from memory takes 10 ms of each pass.
BATCH_S = 0.2

#: Tokens of texts that a core caches for later items with the same texts; 25 bytes each.
CACHED_TOKENS = 500_000

#: A core whose batch takes longer than this no longer renews its leases, in seconds: ten times the longest pass.
STUCK_S = 300.0

#: How often a process that waits for its core checks for a stop, in seconds.
STOP_CHECK_S = 0.2

#: The exit status of a process that ends because of its core's errors.
FAULT_STATUS = 70


class CoreProcess:
    """All that one worker child holds. The drain uses it from the main thread, the heartbeat from its own."""

    def __init__(
        self,
        settings: Settings,
        core: Core,
        bell: str,
        record: FaultRecord | None = None,
        loader: Loader | None = None,
        observers: Sequence[ObserverFactory] = (),
    ) -> None:
        """``loader`` replaces the default one; ``observers`` make observers in addition to core's own."""
        self.settings = settings
        self.core = core
        self.bell = bell
        #: Logs that Redis cannot be reached, for the heartbeat, the drain and the loader together.
        self.outage = Outage(log, "store")
        #: Whether the drain's last trip to Redis failed.
        self.is_cut_off = False
        self.metrics = ProcessMetrics("core")
        #: Adds up what the drain and the loader measure; the heartbeat sends it.
        self.recorder = self.metrics.recorder
        plans = partial(Plans, settings, str(core), bell)
        self._loader = loader = loader or make_loader(settings)
        self.models = CoreModels(settings, loader, plans, str(core), self.lose, self.outage, self.recorder)
        #: The runners by version; only the drain's thread uses them.
        self.runners = self.models.table.runners
        self.dispatch = Dispatch(settings, str(core))
        #: The leases in progress. The heartbeat renews them unless one batch takes too long.
        self.leases: list[str] = []
        self.vitals = Vitals(core)
        observed = ObservedCore(settings, str(core), self.dispatch, self.recorder)
        made: list[CoreObserver] = []
        for make in observers:
            with PassedOver(repr(make), "observers"):
                made += make(observed)
        job_log = JobLog(self.dispatch, is_verbose=settings.log_level == "debug")
        #: The observers of the core's work: the drain and the heartbeat call them.
        self.memory = MemoryBound(settings, self.models)
        self.observers = Observers([*made, self.vitals, CoreMetrics(self.recorder), job_log, self.memory])
        self._cpu_kind = host_kind(settings.cpu_kind) if settings.target == "cpu" else ""
        self._device = open_device(settings.target, lambda: loader.device_bytes(), settings.cpus_per_core)
        self.retired = False
        #: The error for which this process must end, if a load found one.
        self.lost: CoreLost | RuntimeLost | None = None
        self._is_draining = self._is_ending = False
        self._drain_lock = threading.Lock()
        self._record = record or FaultRecord()
        self._history = self._record.load()
        #: A state and reason that are reported whatever the models' states are.
        self._standing: tuple[str, str] | None = None
        self._has_looked = False
        self._has_served = False
        self._announcer = Announcer(settings, str(core))
        self._duplicate_host = DuplicateHostWatch(core, self._announcer.read)
        self._liveness = LivenessFile(settings.health_dir, str(core))
        #: The drain's thread uses the heartbeat's connection too, when models come and go.
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._beat_on, name="heartbeat", daemon=True)

    @property
    def versions(self) -> list[str]:
        """Return the versions that this core serves."""
        return self.models.table.served()

    @property
    def state(self) -> str:
        """Return the state of the core.

        It is ``starting``, ``idle``, ``busy``, or ``failed`` if no wanted model could be loaded. After errors of the
        core it is ``waiting``, ``restarting`` or ``out_of_service``.
        """
        if self._standing is not None:
            return self._standing[0]
        if self.leases:
            return "busy"
        if self.versions:
            return "idle"
        states = {model["state"] for model in self.models.describe()}
        if not self._has_looked or states & {ModelState.WAITING, ModelState.LOADING, ModelState.LOADED}:
            return "starting"
        return "failed" if ModelState.FAILED in states else "idle"

    def start(self, should_stop: Callable[[], bool]) -> None:
        """Start heartbeats, then load the wanted models. After errors of the core, wait first."""
        self._note(after_begin(self._history))
        if self._history.killed:
            log.warning("process_was_killed", core=str(self.core), reason=self._history.killed)
        if self._history.out:
            self._standing = ("out_of_service", self._history.reason)
        self._write_liveness()
        self._thread.start()
        if not self._history.out:
            self._wait_out(should_stop)
            # This precedes loading the accelerator's libraries, which read the variables once.
            os.environ.update(self._history.environment)  # noqa: TID251
        self._join(should_stop)

    def _note(self, history: FaultHistory) -> FaultHistory:
        """Keep the history, and save it for the next process."""
        self._history = history
        self._record.save(history)
        return history

    def _wait_out(self, should_stop: Callable[[], bool]) -> None:
        """Leave the core alone as long as its history requires."""
        if not self._history.pause_s:
            return
        until = time.monotonic() + self._history.pause_s
        self._standing = ("waiting", self._history.reason)
        log.warning("core_waits", core=str(self.core), seconds=self._history.pause_s, reason=self._history.reason)
        while time.monotonic() < until and not should_stop():
            time.sleep(STOP_CHECK_S)
        self._standing = None

    def _join(self, should_stop: Callable[[], bool]) -> None:
        """Take back what a predecessor held, ring, and begin to load. Repeat until Redis replies or a stop is due."""
        while not self._closing.is_set() and not should_stop():
            try:
                self.return_claims(self._history.killed)
                if not self._history.out:
                    self.dispatch.wake(self.bell)
                    self.models.start()
                    self._has_looked = True
                return
            except Unavailable as error:
                self.outage.lost(error.detail, "heartbeat")
                self._closing.wait(self.settings.heartbeat_s)

    def swap_runners(self, is_busy: Callable[[str], bool]) -> None:
        """Serve the models that are loaded by now, and release those that leave. Called between two batches."""
        changed, retired = self.models.table.swap_runners(is_busy)
        if retired:
            self.models.loads.unload(retired)
        if not changed:
            return
        self.memory.note_models()
        if self.runners and not self._has_served:
            self._has_served = True
            self._note(after_start(self._history))
        self._beat()

    def begin_drain(self) -> bool:
        """Note that a drain begins; return False if it must not, because the process is about to end."""
        with self._drain_lock:
            self._is_draining = self.lost is None and not self._is_ending
            return self._is_draining

    def begin_end(self) -> bool:
        """Begin no more drains, because the process is about to end; return False while a drain is in progress."""
        with self._drain_lock:
            self._is_ending = not self._is_draining
            return self._is_ending

    def end_drain(self) -> None:
        """Note that the drain is over. If a load has failed fatally meanwhile, the process ends now."""
        with self._drain_lock:
            self._is_draining = False
        if self.lost is not None:
            self.end_process(self.lost)

    def lose(self, error: CoreLost | RuntimeLost) -> None:
        """End this process after an error of a load. A drain in progress first returns what it holds."""
        with self._drain_lock:
            self.lost = error
            if self._is_draining:
                return
        self.end_process(error)

    def end_process(self, error: CoreLost | RuntimeLost) -> NoReturn:
        """Save the error for the next process, report it, and end this one at once: only that frees a core."""
        now = time.monotonic()
        history = self._note(after_fault(self._history, error, now, self.settings.core_restarts))
        self.retired = True
        state = "out_of_service" if history.out else "waiting" if isinstance(error, CoreBusy) else "restarting"
        self._standing = (state, history.reason)
        self._write_liveness()
        say = log.warning if isinstance(error, CoreBusy) else log.error
        say(f"core_{state}", core=str(self.core), code=error.code, detail=history.reason)
        try:
            if error is not self.lost:
                self.models.loads.absolve()
            self.dispatch.leave(self.versions, self.bell)
            self._beat()
            with self._lock:
                self._announcer.flush(self.metrics, leaves=True)
        except Unavailable as unavailable:
            log.warning("left_without_good_bye", detail=unavailable.detail)
        finally:
            self.observers.close()
            os._exit(FAULT_STATUS)

    def retire(self) -> None:
        """Take no more work, and ring other cores."""
        self.retired = True
        self.dispatch.leave(self.versions, self.bell)

    def return_claims(self, cause: str) -> None:
        """Return all that this core has claimed but not answered to the lanes, counting one more attempt.

        Items without attempts left fail, and their errors say the ``cause``, if it is known.
        """
        Upkeep(self.settings, self.bell).return_own(str(self.core), cause)

    def close(self, *, comes_back: bool = False) -> None:
        """Leave the fleet and return everything. With ``comes_back`` another process takes over."""
        self._closing.set()
        self._note(after_end(self._history))
        self._thread.join(timeout=self.settings.heartbeat_s + 1)
        self._liveness.clear()
        try:
            with self._lock:
                self.dispatch.leave(self.versions, self.bell, gone=not comes_back)
                self._announcer.flush(self.metrics, leaves=True)
        except Unavailable as error:
            log.warning("left_without_good_bye", detail=error.detail)
        self.models.close()
        self._device.close()
        self.observers.close()

    def _beat_on(self) -> None:
        while not self._closing.wait(self.settings.heartbeat_s):
            self._write_liveness()
            self._loader.trim(is_idle=not self.leases)
            try:
                with self._lock:
                    self._duplicate_host.look()
                pulse = self._beat()
                if pulse.unknown:
                    self.models.announce_again(pulse.unknown)
                if self._has_looked:
                    self.models.follow(pulse.revision)
                with self._lock:
                    self._announcer.flush(self.metrics)
                self.outage.served("heartbeat")
            except Unavailable as error:
                self.outage.lost(error.detail, "heartbeat")
            except Exception:
                # Without a heartbeat this core's leases lapse and its work is lost: log the error, and continue.
                log.exception("heartbeat_failed")

    def _write_liveness(self) -> None:
        """Note state and reason for health checks, even if Redis cannot be reached. A stuck process notes nothing."""
        if not self.vitals.is_stuck(STUCK_S):
            state = self.state
            reasons = [] if state in ("idle", "busy") else self._reasons(self.models.describe())
            self._liveness.write(state, "; ".join(reasons))

    def _beat(self) -> BeatReply:
        """Send one heartbeat; return the reply."""
        stuck = self.vitals.is_stuck(STUCK_S)
        versions = [] if self.retired else self.versions
        with self._lock:
            if self._closing.is_set():
                # A heartbeat would bring a core back that has just left.
                return BeatReply("")
            fields = self._fields()
            self.observers.beats(fields)
            return self._announcer.beat(
                fields,
                versions,
                [] if stuck else self.leases,
                self.vitals.speed(),
                is_full_speed=self.vitals.is_full_speed,
                is_out=self.state == "out_of_service",
            )

    def _fields(self) -> dict[str, object]:
        models = [] if self._standing else self.models.describe()
        return {
            "state": self.state,
            "versions": orjson.dumps([] if self.retired else self.versions),
            "models": orjson.dumps(models),
            "reasons": orjson.dumps(self._reasons(models)),
            "restarts": self._history.restarts,
            "cpu_kind": self._cpu_kind,
            "library": read_library().name,
            "device": orjson.dumps(self._device.read()),
            **self.vitals.fields(list(self.runners.values())),
        }

    def _reasons(self, models: Sequence[Mapping[str, Any]]) -> list[str]:
        if self._standing is not None:
            return [self._standing[1]]
        return list(dict.fromkeys(model["reason"] for model in models if model["reason"]))


def make_loader(settings: Settings) -> Loader:
    """Return the loader of a core's models, by the settings."""
    url, remote = settings.artifacts_url, None
    if url is not None:
        remote = RemoteRoot(url, settings.fetched_root, options_for(url))
    limits = RunnerLimits(
        BATCH_S,
        CACHED_TOKENS,
        settings.max_windows,
        settings.max_output_bytes,
        settings.handlers,
        settings.handler_errors == "frames",
        Core(settings.core_host, settings.core or 0),
        file_fetcher(settings),
    )
    return Loader(
        settings.target,
        settings.artifact_root,
        remote,
        limits,
        settings.null_batch_s,
        settings.cpu_kind,
        settings,
    )
