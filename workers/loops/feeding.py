"""The feed loop: keeps the lanes filled from the files of large jobs, one step of each in turn."""

import time
from collections.abc import Callable

from corelane.log import get_logger
from corelane.store.feeding import Feeder

log = get_logger(__name__)

#: Longest time that one round feeds, in seconds, so that strays are searched for now and then.
ROUND_S = 60

#: Pause while no job has room for another step, in seconds.
FULL_PAUSE_S = 0.05


def feed(feeder: Feeder, name: str, should_stop: Callable[[], bool]) -> int:
    """Feed until nothing is left, unless another process holds the lease; return the number of steps.

    Raises Unavailable if Redis cannot be reached. ``name`` is unique to this feeder, so after an error it continues
    under its own lease.
    """
    if not feeder.has_work(name):
        return 0
    steps, deadline = 0, time.monotonic() + ROUND_S
    feeder.remove_strays()
    while not should_stop() and time.monotonic() < deadline and feeder.take_turn(name):
        jobs = feeder.jobs()
        if not jobs:
            break
        fed = sum(feeder.feed(job) for job in jobs)
        steps += fed
        if not fed:
            time.sleep(FULL_PAUSE_S)
    feeder.end_turn(name)
    return steps
