"""What the keeper's loops do in a round: sweep, feed large jobs, and log overdue work.

A sweep makes sure that nothing that was accepted is forgotten. It returns the leases of dead cores, moves work that
waits for cores that are gone, rings again for work that was not taken, cleans up after jobs that are not kept any
longer, and logs the end of each job once. Any number of keepers may sweep; each step is atomic and may be repeated.
"""

import time
from collections.abc import Callable, Mapping

from celery import Celery

from corelane.broker.app import ring_core
from corelane.domain.conditions import WORK_OVERDUE
from corelane.domain.dispatch import Core
from corelane.domain.request_facts import trace_id
from corelane.log import get_logger
from corelane.store.feeding import Feeder
from corelane.store.gauges import CARRIERS, Waits
from corelane.store.upkeep import Upkeep
from corelane.tracing import Attributes, Tracer, is_sampled

log = get_logger(__name__)

#: Longest time that one round feeds, in seconds, so that strays are searched for now and then.
ROUND_S = 60

#: Pause while no job has room for another step, in seconds.
FULL_PAUSE_S = 0.05

#: Work that stays overdue is logged again after this time, in seconds.
REPEAT_S = 120.0

#: A longer pause between two checks means that there was no check: the process was stopped, or Redis could not be
#: reached. In seconds.
GAP_S = 15.0


def sweep(app: Celery, upkeep: Upkeep, tracer: Tracer | None) -> None:
    """Do one round of the sweep. Raises Unavailable if Redis cannot be reached; the next round tries again."""
    returned = upkeep.return_lapsed()
    upkeep.let_in()
    silent = upkeep.tend()
    for core in silent:
        ring_core(app, Core.parse(core))
    upkeep.forget()
    upkeep.went_round()
    tell_ended(upkeep, tracer)
    if returned:
        log.warning("swept", returned=returned, rung=silent)
    elif silent:
        # This happens every second while a core loads its model, or its worker is replaced.
        log.info("swept", returned=returned, rung=silent)


def tell_ended(upkeep: Upkeep, tracer: Tracer | None = None) -> None:
    """Log each job that became final: its outcome, how long it waited and took, its request and its trace."""
    for told in upkeep.ended():
        job: dict[str, object] = dict(told)
        if parent := str(job.pop("traceparent", "")):
            job["trace_id"] = trace_id(parent)
            if tracer is not None and is_sampled(parent):
                trace_job(tracer, parent, told)
        created, started, finished = (job.pop(name, None) for name in ("created_ms", "started_ms", "finished_ms"))
        for name, begin, end in (("waited_s", created, started), ("seconds", created, finished)):
            if isinstance(begin, int) and isinstance(end, int):
                job[name] = (end - begin) / 1000
        log.info("job_ended", **job)


def trace_job(tracer: Tracer, parent: str, job: Mapping[str, str | int]) -> None:
    """Trace a job that became final: the whole job, and its wait for the first core."""
    facts: Attributes = {
        "messaging.system": "corelane",
        "messaging.destination.name": str(job.get("version", "")),
        "corelane.job.id": str(job["job_id"]),
        "corelane.job.status": str(job["status"]),
        **{f"corelane.job.{name}": job.get(name) for name in ("total", "succeeded", "failed", "canceled", "expired")},
    }
    created, finished = job.get("created_ms"), job.get("finished_ms")
    if not isinstance(created, int) or not isinstance(finished, int):
        return
    started = job.get("started_ms", finished)
    for name, end in (("queue", started), ("job", finished)):
        tracer.write(name, "internal", parent, facts, times_ns=(1_000_000 * created, 1_000_000 * int(end)))


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


class Alarm:
    """Logs each kind of overdue work when it begins, now and then while it lasts, and when it is over.

    Waiting time in which there were no checks, as before a start, does not show that the work is stuck. So after such a
    gap nothing is logged until work could have become overdue again.
    """

    def __init__(self) -> None:
        self._told_s: dict[str, float] = {}
        self._looked_s = self._since_s = float("-inf")

    def tell(self, overdue: Waits, now_s: float) -> None:
        """Log work that becomes, stays or stops being overdue; ``now_s`` must only grow."""
        if now_s - self._looked_s > GAP_S:
            self._since_s = now_s
        self._looked_s = now_s
        if now_s - self._since_s < WORK_OVERDUE.bound:
            return
        for name, waited_s in overdue.items():
            if now_s - self._told_s.get(name, float("-inf")) >= REPEAT_S:
                self._told_s[name] = now_s
                log.warning("overdue", what=name, waited_s=round(waited_s), carried_by=CARRIERS[name])
        for name in set(self._told_s) - set(overdue):
            del self._told_s[name]
            log.info("overdue_no_more", what=name)
