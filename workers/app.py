"""The Celery app of the worker processes: ``celery -A workers.app worker …``, an entry point.

All tasks are registered here, in one place, and call plain functions. The queues that a process reads determine its
role and its loops (``workers.roles``). A process that serves a core has ``CORELANE_CORE`` set.
"""

import multiprocessing
import os
import threading
from contextlib import closing
from multiprocessing.process import AuthenticationString  # type: ignore[attr-defined]
from typing import Any

from celery import Celery, signals

from corelane.broker.app import bell_envelope, make_celery
from corelane.broker.bootsteps import add_steps
from corelane.domain.dispatch import DRAIN_TASK, Core
from corelane.errors import SetupError
from corelane.log import configure_logging, get_logger, log_prints
from corelane.plugin import installed
from corelane.settings import Settings
from corelane.store.link.blocking import Link
from corelane.store.schema import require_schema
from workers.core.duplicate_host import require_own_name
from workers.core.faults import FaultRecord
from workers.loops.loop import add_loops
from workers.plugin import WorkerPlugin
from workers.roles import loops_by_queue

log = get_logger(__name__)

#: A child that ends itself waits this long, in seconds, so that the result of its last task reaches the parent.
RESTART_PAUSE_S = 0.2

#: The start does not wait longer than this for a Redis that does not reply, in seconds.
SCHEMA_TIMEOUT_S = 2


def create_app(settings: Settings) -> Celery:
    """Make the app with its tasks, steps and signals, for one process tree."""
    celery = make_celery(settings)
    add_steps(celery)
    if settings.core is not None:
        _add_drain(celery, settings, Core(settings.core_host, settings.core))
    add_loops(celery, loops_by_queue(celery, settings), settings.health_dir)
    signals.celeryd_init.connect(lambda **_: _begin(settings), weak=False)
    signals.setup_logging.connect(lambda **_: configure_logging(settings.log_level, settings.log_format), weak=False)
    return celery


def _begin(settings: Settings) -> None:
    """Import what the children of this process run.

    End the process before it has children if it does not know the format of the data in Redis, or if another machine
    uses the name of its core.
    """
    try:
        with closing(Link(settings.redis_url, SCHEMA_TIMEOUT_S)) as link:
            require_schema(link, settings.cell)
        if settings.core is not None:
            require_own_name(settings, Core(settings.core_host, settings.core))
    except SetupError as error:
        raise SystemExit(f"Error: {error.detail}") from None
    if settings.core is not None:
        from workers.core.drain import preload

        preload(settings.target)


def _add_drain(celery: Celery, settings: Settings, core: Core) -> None:
    """Register the drain task, and start and stop the core with each child process. The parent runs no torch code."""
    held: dict[str, Any] = {}
    record = FaultRecord()

    def should_stop() -> bool:
        return bool(celery.stop_flag[0])

    def start_core(**_: object) -> None:
        from workers.core.process import CoreProcess

        log_prints()
        # Celery's children are daemons, which may not start processes, and their key is billiard 4.3's, which cannot be
        # handed to one. A handler may start some: see ``bootsteps.follow_ends``.
        config = multiprocessing.current_process()._config  # type: ignore[attr-defined]
        config |= {"daemon": False, "authkey": AuthenticationString(config["authkey"])}
        observers = [plugin.observers for plugin in installed(WorkerPlugin)]
        process = held["core"] = CoreProcess(settings, core, bell_envelope(celery), record, observers=observers)
        process.start(should_stop)

    def stop_core(**_: object) -> None:
        if "core" in held:
            held["core"].close()
        for each in multiprocessing.active_children():
            each.kill()

    celery.note_end = record.note_end
    signals.worker_process_init.connect(start_core, weak=False)
    signals.worker_process_shutdown.connect(stop_core, weak=False)

    @celery.task(name=DRAIN_TASK)
    def drain_lanes() -> dict[str, float]:
        from workers.core.drain import drain

        core = held["core"]
        report = drain(core, should_stop)
        if core.models.loads.must_restart:
            threading.Timer(RESTART_PAUSE_S, end_process, (core,)).start()
        return report


def end_process(core: Any) -> None:
    """End this child, so that a new one holds only the wanted models; the parent replaces it at once.

    A drain in progress calls this again when it is over.
    """
    if not core.begin_end():
        return
    log.info("process_ends_to_free_memory")
    core.close(comes_back=True)
    os._exit(0)


app = create_app(Settings())
