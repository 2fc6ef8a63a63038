"""Roles: which loops the keeper runs, and which the webhook sender."""

import time
from collections.abc import Callable
from contextlib import suppress
from uuid import uuid4

from celery import Celery

from corelane.broker.app import bell_envelope
from corelane.domain.dispatch import DELIVERY_QUEUE, KEEPER_QUEUE
from corelane.errors import Unavailable
from corelane.log import Outage, PassedOver, get_logger
from corelane.plugin import installed
from corelane.settings import Settings
from corelane.tracing import Tracer, open_tracer
from workers.loops.loop import SWEEP_S, Loop, LoopsByQueue, LoopTools
from workers.plugin import WorkerPlugin

log = get_logger(__name__)

#: The keeper's loops end after their current step, which never takes longer than this, in seconds.
KEEPER_GRACE_S = 10.0

#: Time to report and release deliveries, in addition to the time of attempts in progress, in seconds.
SENDER_GRACE_S = 5.0

#: Pause between two checks for overdue work, in seconds.
WATCH_S = 5.0

#: Pause between two rounds of the sender, in seconds. There is none, as a round itself waits.
NO_PAUSE_S = 0.0


def loops_by_queue(celery: Celery, settings: Settings) -> LoopsByQueue:
    """Return the loops for each queue."""
    outage = Outage(log, "store")

    def keeping() -> list[Loop]:
        bell, tracer = bell_envelope(celery), tracer_of("keeper", settings)
        feed = feeding(settings, bell, outage)
        return [
            sweeping(celery, settings, bell, outage, tracer),
            feed,
            watching(settings, outage),
            flushing(settings, "keeper", outage),
            *of_plugins(KEEPER_QUEUE, LoopTools(settings, bell, outage, tracer, feed.wake.set)),
        ]

    def posting() -> list[Loop]:
        tracer = tracer_of("deliveries", settings)
        tools = LoopTools(settings, bell_envelope(celery), outage, tracer)
        own = [sending(settings, outage, tracer), watching(settings, outage), flushing(settings, "deliveries", outage)]
        return [*own, *of_plugins(DELIVERY_QUEUE, tools)]

    return {
        KEEPER_QUEUE: (keeping, KEEPER_GRACE_S),
        DELIVERY_QUEUE: (posting, settings.webhook_timeout_s + SENDER_GRACE_S),
    }


def tracer_of(role: str, settings: Settings) -> Tracer | None:
    """Return the tracer of this process, if a plugin has one for it."""
    with PassedOver("plugins", "tracer"):
        return open_tracer(role, settings.core_host)
    return None


def of_plugins(queue: str, tools: LoopTools) -> list[Loop]:
    """Return the loops that plugins add for a queue."""
    loops: list[Loop] = []
    for plugin in installed(WorkerPlugin):
        with PassedOver(plugin.name, "loops"):
            loops += plugin.loops(queue, tools)
    return loops


def sweeping(celery: Celery, settings: Settings, bell: str, outage: Outage, tracer: Tracer | None) -> Loop:
    """Make the loop of the keeper's sweep."""

    def begin() -> Callable[[], object]:
        from corelane.store.upkeep import Upkeep
        from workers.loops.rounds import sweep

        upkeep = Upkeep(settings, bell)
        upkeep.drop_libraries()
        return lambda: sweep(celery, upkeep, tracer)

    end = bool if tracer is None else tracer.flush
    return Loop("sweep", begin, pause_s=SWEEP_S, outage=outage, end=end)


def feeding(settings: Settings, bell: str, outage: Outage) -> Loop:
    """Make the loop that feeds large jobs. A slow disk delays only this loop."""
    name = uuid4().hex

    def begin() -> Callable[[], object]:
        from corelane.store.feeding import Feeder
        from workers.loops.rounds import feed

        feeder = Feeder(settings, bell)
        return lambda: feed(feeder, name, loop.over.is_set)

    loop = Loop("feed", begin, pause_s=SWEEP_S, outage=outage, must_move=False)
    return loop


def sending(settings: Settings, outage: Outage, tracer: Tracer | None = None) -> Loop:
    """Make the loop that posts webhooks."""
    from workers.webhooks import WebhookSender

    sender = WebhookSender(settings, tracer)

    def begin() -> Callable[[], object]:
        return lambda: sender.go_round(loop.over.is_set)

    loop = Loop("deliveries", begin, pause_s=NO_PAUSE_S, outage=outage, end=sender.finish)
    return loop


def watching(settings: Settings, outage: Outage) -> Loop:
    """Make the loop that checks for overdue work. The keeper watches the sender's work, the sender the keeper's."""
    from corelane.store.link.blocking import Link

    link = Link(settings.redis_url)

    def begin() -> Callable[[], object]:
        from corelane.store.gauges import only_overdue, read_waits
        from workers.loops.rounds import Alarm

        alarm = Alarm()
        return lambda: alarm.tell(only_overdue(link.read(read_waits)), time.monotonic())

    return Loop("watch", begin, pause_s=WATCH_S, outage=outage, end=link.close)


def flushing(settings: Settings, role: str, outage: Outage) -> Loop:
    """Make the loop that sends what this process measures, and shows that the process lives."""
    from corelane.store.link.blocking import Link
    from corelane.store.metrics import FLUSH_S, ProcessMetrics

    metrics, link = ProcessMetrics(role), Link(settings.redis_url)

    def end() -> None:
        with suppress(Unavailable):
            metrics.flush_over(link, leaves=True)

    return Loop("metrics", lambda: lambda: metrics.flush_over(link), pause_s=FLUSH_S, outage=outage, end=end)
