"""The keeper's sweep: nothing that was accepted is forgotten.

Returns the leases of the dead, moves what waits for cores that are gone, rings again for work nobody took up, hands out
due deliveries, sees that large jobs are fed and batches carried on, clears up after jobs no longer kept. Any number of
keepers may sweep; each step is atomic and may be repeated.
"""

from celery import Celery

from corelane.broker import ring_core, send_batches, send_delivery, send_feed
from corelane.lanes import Core
from corelane.log import get_logger
from corelane.store.batches import BatchWatch
from corelane.store.deliveries import DeliveryStore
from corelane.store.feeding import Feeder
from corelane.store.upkeep import Upkeep

log = get_logger(__name__)

#: Deliveries handed out in one sweep; fewer than the keeper has threads, so that slow receivers never stop the sweeps.
DELIVERIES_PER_SWEEP = 6


def sweep(app: Celery, upkeep: Upkeep, deliveries: DeliveryStore, feeder: Feeder, batches: BatchWatch) -> str:
    """One round; a line on what was done. Raises Unavailable if Redis is away: the next round tries again."""
    returned = upkeep.return_lapsed()
    silent = upkeep.tend()
    for core in silent:
        ring_core(app, Core.parse(core))
    upkeep.forget()
    due = deliveries.take_due(DELIVERIES_PER_SWEEP)
    for delivery in due:
        send_delivery(app, delivery)
    if feeder.has_work():
        send_feed(app)
    if batches.has_work():
        send_batches(app)
    if returned or silent:
        log.warning("swept", returned=returned, rung=silent)
    return f"{returned} returned · {len(silent)} rung · {len(due)} deliveries"
