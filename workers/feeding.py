"""The feed task: keeps the lanes filled from the files of large jobs, one step of each in turn."""

import time
from collections.abc import Callable
from uuid import uuid4

from corelane.log import get_logger
from corelane.store.feeding import Feeder

log = get_logger(__name__)

#: One task feeds for so long at most, so that Celery sees tasks end; the next sweep begins another, in seconds.
TASK_S = 60

#: Pause while every job's slices in progress leave no room, in seconds.
FULL_PAUSE_S = 0.05


def feed(feeder: Feeder, should_stop: Callable[[], bool]) -> str:
    """Feed until nothing is left to be fed; a line on what was done. Raises Unavailable if Redis is away."""
    name, steps, deadline = uuid4().hex, 0, time.monotonic() + TASK_S
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
    return f"{steps} steps"
