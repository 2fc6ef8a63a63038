"""The keeper's sweep: nothing that was accepted is forgotten.

Returns the leases of the dead, moves what waits for cores that are gone, rings again for work nobody took up, sees that
webhooks are posted, large jobs fed and batches carried on, clears up after jobs no longer kept. Any number of keepers
may sweep; each step is atomic and may be repeated.
"""

from celery import Celery

from corelane.broker import ring_core, send_batches, send_deliver, send_feed
from corelane.lanes import Core
from corelane.log import get_logger
from corelane.store.batches import BatchWatch
from corelane.store.feeding import Feeder
from corelane.store.upkeep import Upkeep

log = get_logger(__name__)

#: Rings that may wait in the queue of deliveries; where nobody posts webhooks, no more pile up.
MOST_RINGS = 2


def sweep(app: Celery, upkeep: Upkeep, feeder: Feeder, batches: BatchWatch) -> str:
    """One round; a line on what was done. Raises Unavailable if Redis is away: the next round tries again."""
    returned = upkeep.return_lapsed()
    silent = upkeep.tend()
    for core in silent:
        ring_core(app, Core.parse(core))
    upkeep.forget()
    if upkeep.rings_waiting() < MOST_RINGS:
        send_deliver(app)
    if feeder.has_work():
        send_feed(app)
    if batches.has_work():
        send_batches(app)
    if returned or silent:
        log.warning("swept", returned=returned, rung=silent)
    return f"{returned} returned · {len(silent)} rung"
