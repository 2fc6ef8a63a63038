"""The feed loop: keeps the lanes filled from the files of large jobs, one step of each in turn."""

import time
from collections.abc import Callable

from corelane.log import get_logger
from corelane.store.feeding import Feeder

log = get_logger(__name__)

#: One round feeds for so long at most, so that strays are looked for now and then, in seconds.
ROUND_S = 60

#: Pause while every job's slices in progress leave no room, in seconds.
FULL_PAUSE_S = 0.05


def feed(feeder: Feeder, name: str, should_stop: Callable[[], bool]) -> int:
    """Feed until nothing is left, unless another process holds the lease; return the steps taken.

    Raises Unavailable if Redis is unreachable.

    ``name`` is unique to this feeder, so after an error it goes on under its own lease.
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
