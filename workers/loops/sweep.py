"""The keeper's sweep: nothing that was accepted is forgotten.

Returns the leases of the dead, moves what waits for cores that are gone, rings again for work nobody took up, clears up
after jobs no longer kept, and logs the end of each job once. Any number of keepers may sweep; each step is atomic and
may be repeated.
"""

from celery import Celery

from corelane.broker.app import ring_core
from corelane.domain.dispatch import Core
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
    tell_ended(upkeep)
    if returned:
        log.warning("swept", returned=returned, rung=silent)
    elif silent:
        # Each second while a core loads its model, or its worker is replaced.
        log.info("swept", returned=returned, rung=silent)


def tell_ended(upkeep: Upkeep) -> None:
    """Log each job that became final: how, how long it waited and took, and which request it came with."""
    for told in upkeep.ended():
        job: dict[str, object] = dict(told)
        created, started, finished = (job.pop(name, None) for name in ("created_ms", "started_ms", "finished_ms"))
        for name, begin, end in (("waited_s", created, started), ("seconds", created, finished)):
            if isinstance(begin, int) and isinstance(end, int):
                job[name] = (end - begin) / 1000
        log.info("job_ended", **job)
