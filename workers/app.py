"""The Celery app of the worker processes: ``celery -A workers.app worker …``, an entry point.

All tasks are registered here, in one place, and call plain functions. Which role a process plays is said by its queues;
one that serves a core has ``CORELANE_CORE`` set.
"""

import os
import threading
from typing import Any

from celery import Celery, signals

from corelane.broker import bell_envelope, make_celery
from corelane.errors import Unavailable
from corelane.lanes import BATCH_TASK, DELIVER_TASK, DRAIN_TASK, FEED_TASK, SWEEP_TASK, Core
from corelane.log import configure_logging, get_logger
from corelane.settings import Settings
from workers.faults import FaultRecord
from workers.steps import add_steps

log = get_logger(__name__)

#: A child that ends itself does so after the result of its last task has reached the parent, in seconds.
RESTART_PAUSE_S = 0.2


def create_app(settings: Settings) -> Celery:
    """The app with its tasks, steps and signals, for one process tree."""
    celery = make_celery(settings)
    add_steps(celery)
    if settings.core is not None:
        _add_drain(celery, settings, Core(settings.core_host, settings.core))
    _add_keeping(celery, settings)
    signals.setup_logging.connect(lambda **_: configure_logging(settings.log_level, settings.log_format), weak=False)
    return celery


def _add_drain(celery: Celery, settings: Settings, core: Core) -> None:
    """The drain, and the core's process around it; torch is imported in the child that uses it and nowhere else."""
    held: dict[str, Any] = {}
    record = FaultRecord()

    def start_core(**_: object) -> None:
        from workers.core import CoreProcess

        process = held["core"] = CoreProcess(settings, core, bell_envelope(celery), record)
        process.start(celery.stop_flag.is_set)

    def stop_core(**_: object) -> None:
        if "core" in held:
            held["core"].close()

    signals.worker_process_init.connect(start_core, weak=False)
    signals.worker_process_shutdown.connect(stop_core, weak=False)

    @celery.task(name=DRAIN_TASK)
    def drain_lanes() -> str:
        from workers.drain import drain

        core = held["core"]
        report = drain(core, celery.stop_flag.is_set)
        if core.models.must_restart:
            threading.Timer(RESTART_PAUSE_S, end_process, (core,)).start()
        return report


def end_process(core: Any) -> None:
    """End this child, so that a fresh one holds what is wanted and nothing else; the parent replaces it at once."""
    log.info("process_ends_to_free_memory")
    core.close()
    os._exit(0)


def _add_keeping(celery: Celery, settings: Settings) -> None:
    """The sweep, the feeding and the deliveries; connections are opened once, by the first that runs."""
    sweeping, making = threading.Lock(), threading.Lock()
    held: dict[str, Any] = {}
    couriers: list[Any] = []

    @celery.task(name=SWEEP_TASK, send_events=False)
    def sweep_once() -> str:
        from corelane.store.batches import BatchWatch
        from corelane.store.feeding import Feeder
        from corelane.store.upkeep import Upkeep
        from workers.keeper import sweep

        if not sweeping.acquire(blocking=False):
            return "another sweep runs"
        try:
            if not held:
                bell = bell_envelope(celery)
                held.update(upkeep=Upkeep(settings, bell), feeder=Feeder(settings, bell), batches=BatchWatch(settings))
            return sweep(celery, **held)
        except Unavailable as error:
            log.warning("sweep_waits_for_store", detail=error.detail)
            return error.detail
        finally:
            sweeping.release()

    @celery.task(name=FEED_TASK, send_events=False)
    def feed_jobs() -> str:
        from corelane.store.feeding import Feeder
        from workers.feeding import feed

        try:
            return feed(Feeder(settings, bell_envelope(celery)), celery.stop_flag.is_set)
        except Unavailable as error:
            log.warning("feed_waits_for_store", detail=error.detail)
            return error.detail

    @celery.task(name=BATCH_TASK, send_events=False)
    def carry_batches() -> str:
        from workers.batches import carry_on

        try:
            return carry_on(settings, bell_envelope(celery), celery.stop_flag.is_set)
        except Unavailable as error:
            log.warning("batches_wait_for_store", detail=error.detail)
            return error.detail

    @celery.task(name=DELIVER_TASK, send_events=False)
    def deliver_due() -> str:
        from workers.delivery import Courier

        with making:
            if not couriers:
                couriers.append(Courier(settings))
        try:
            return str(couriers[0].post_due(celery.stop_flag.is_set))
        except Unavailable as error:
            log.warning("courier_waits_for_store", detail=error.detail)
            return error.detail


app = create_app(Settings())
