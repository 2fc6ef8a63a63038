"""The keeper's sweep: nothing that was accepted is forgotten.

Returns the leases of the dead, moves what waits for cores that are gone, rings again for work nobody took up, clears up
after jobs no longer kept. Any number of keepers may sweep; each step is atomic and may be repeated.
"""

from celery import Celery

from corelane.broker import ring_core
from corelane.lanes import Core
from corelane.log import get_logger
from corelane.store.upkeep import Upkeep

log = get_logger(__name__)


def sweep(app: Celery, upkeep: Upkeep) -> None:
    """One round. Raises Unavailable if Redis is away: the next round tries again."""
    returned = upkeep.return_lapsed()
    silent = upkeep.tend()
    for core in silent:
        ring_core(app, Core.parse(core))
    upkeep.forget()
    upkeep.went_round()
    if returned:
        log.warning("swept", returned=returned, rung=silent)
    elif silent:
        # Each second while a core loads its model, or its worker is replaced.
        log.info("swept", returned=returned, rung=silent)
