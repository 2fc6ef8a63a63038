"""The keeper's sweep: nothing that was accepted is forgotten.

It returns the leases of dead cores, moves work that waits for cores that are gone, rings again for work that was not
taken, cleans up after jobs that are not kept any longer, and logs the end of each job once. Any number of keepers may
sweep; each step is atomic and may be repeated.
"""

from collections.abc import Mapping

from celery import Celery

from corelane.broker.app import ring_core
from corelane.domain.dispatch import Core
from corelane.domain.request_facts import trace_id
from corelane.log import get_logger
from corelane.store.upkeep import Upkeep
from corelane.tracing import Attributes, Tracer, is_sampled

log = get_logger(__name__)


def sweep(app: Celery, upkeep: Upkeep, tracer: Tracer | None = None) -> None:
    """Do one round. Raises Unavailable if Redis cannot be reached: the next round tries again."""
    returned = upkeep.return_lapsed()
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
