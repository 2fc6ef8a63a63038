"""The plugin's loops in the keeper: batches, and inputs and outputs by URL. Slow storage delays only one of them."""

from collections.abc import Callable
from uuid import uuid4

from workers.loops.loop import SWEEP_S, Loop, LoopTools


def batching(tools: LoopTools) -> Loop:
    """Make the loop that runs batches."""
    name = uuid4().hex

    def begin() -> Callable[[], object]:
        from corelane.plugins.files.batches.task import run_batches
        from corelane.plugins.files.store.batches import BatchStore
        from corelane.store.link.blocking import Link

        settings = tools.settings
        link = Link(settings.redis_url)
        return lambda: (
            link.read(lambda read: BatchStore(read).has_work(name))
            and run_batches(settings, tools.bell, loop.over.is_set, name, tools.tracer, tools.feed)
        )

    loop = Loop("batches", begin, pause_s=SWEEP_S / 5, outage=tools.outage, must_move=False)
    return loop


def carrying(tools: LoopTools) -> Loop:
    """Make the loop that reads and writes what jobs name by URL."""
    name = uuid4().hex

    def begin() -> Callable[[], object]:
        from corelane.plugins.files.references.carrier import Carrier

        carrier = Carrier(tools.settings, name)
        return lambda: carrier.go_round(loop.over.is_set)

    loop = Loop("references", begin, pause_s=SWEEP_S, outage=tools.outage, must_move=False)
    return loop
