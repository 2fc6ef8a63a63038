"""What each role of a process repeats: the loops of the keeper, and of the sender of webhooks."""

from collections.abc import Callable
from uuid import uuid4

from celery import Celery

from corelane.broker import bell_envelope
from corelane.lanes import DELIVERY_QUEUE, KEEPER_QUEUE
from corelane.settings import Settings
from workers.loops import Loop, LoopsByQueue

#: The keeper's loops end after their step in hand; none of those takes longer, in seconds.
KEEPER_GRACE_S = 10.0

#: Time to report and let go beyond what attempts under way take, in seconds.
SENDER_GRACE_S = 5.0

#: Pause between two rounds of the sender, which waits in them, in seconds.
NO_PAUSE_S = 0.0


def loops_by_queue(celery: Celery, settings: Settings) -> LoopsByQueue:
    """The loops that go with each queue."""
    return {
        KEEPER_QUEUE: (
            lambda: [sweeping(celery, settings), feeding(celery, settings), batching(celery, settings)],
            KEEPER_GRACE_S,
        ),
        DELIVERY_QUEUE: (lambda: [sending(settings)], settings.webhook_timeout_s + SENDER_GRACE_S),
    }


def sweeping(celery: Celery, settings: Settings) -> Loop:
    """The keeper's sweep."""

    def begin() -> Callable[[], object]:
        from corelane.store.upkeep import Upkeep
        from workers.keeper import sweep

        upkeep = Upkeep(settings, bell_envelope(celery))
        return lambda: sweep(celery, upkeep)

    return Loop("sweep", begin, pause_s=settings.sweep_s)


def feeding(celery: Celery, settings: Settings) -> Loop:
    """The feeding of large jobs: a slow disk may hold it up, and nothing else."""
    name = uuid4().hex

    def begin() -> Callable[[], object]:
        from corelane.store.feeding import Feeder
        from workers.feeding import feed

        feeder = Feeder(settings, bell_envelope(celery))
        return lambda: feed(feeder, name, lambda: loop.is_over)

    loop = Loop("feed", begin, pause_s=settings.sweep_s, must_move=False)
    return loop


def batching(celery: Celery, settings: Settings) -> Loop:
    """The carrying on of batches: their storage may hold it up, and nothing else."""
    name = uuid4().hex

    def begin() -> Callable[[], object]:
        from corelane.store.batches import BatchWatch
        from workers.batches import carry_on

        watch, bell = BatchWatch(settings), bell_envelope(celery)
        return lambda: watch.has_work(name) and carry_on(settings, bell, lambda: loop.is_over, name)

    loop = Loop("batches", begin, pause_s=settings.sweep_s, must_move=False)
    return loop


def sending(settings: Settings) -> Loop:
    """The posting of webhooks."""
    from workers.delivery import Courier

    courier = Courier(settings)
    return Loop("deliveries", lambda: courier.go_round, pause_s=NO_PAUSE_S, end=courier.finish)
