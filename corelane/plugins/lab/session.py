"""A session: one service, one set of items, one way to ask; and the points that are measured in it.

A point is a load, offered once or several times. Each time has the service's own metrics and a check of its results.
Sweeps, presets and the search for a rate are made of points.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from corelane.errors import ServiceError
from corelane.plugins.lab.figures import Measurement, Objective, point_figures, summarise
from corelane.plugins.lab.generator import run_load
from corelane.plugins.lab.load import CORELANE_SENDER, LoadProgress, RunPlan
from corelane.plugins.lab.machine import read_service
from corelane.plugins.lab.schema import Load, LoadPoint, ServiceInfo
from corelane.plugins.lab.senders import Manner, Target, make_sender
from corelane.plugins.lab.split import SplitWatch
from corelane.plugins.lab.workload import Workload

#: Single items that are timed to choose a rate, and items before them that are not counted.
PROBES, FIRST_PROBES = 8, 3

#: The default rate, as a share of what the cores could do if each took the time of a single item.
MODEST = 0.3

#: Most items that are sent to the idle service.
MOST_IDLE = 1000

OnTick = Callable[[LoadProgress], object]


def described(plan: RunPlan) -> Load:
    """Return the load of a plan with its time and bounds, as a report has it."""
    bounds = {"requests": plan.requests, "max_in_flight": plan.max_in_flight}
    detail = plan.load.detail | {name: bound for name, bound in bounds.items() if bound is not None}
    return plan.load.model_copy(update={"duration_s": plan.duration_s, "detail": detail})


@dataclass(slots=True)
class Session:
    """The shared settings of a report's points. Sweeps and searches get ``measure``."""

    target: Target
    workload: Workload
    plan: RunPlan
    repeat: int = 1
    objective: Objective | None = None
    on_begin: Callable[[str], object] = lambda _name: None
    on_tick: OnTick = lambda _tick: None
    on_run: Callable[[str, Measurement], object] = lambda _name, _measured: None
    #: What the service said of itself when the session was opened.
    service: ServiceInfo | None = None
    problems: list[str] = field(default_factory=list)

    def measure(self, name: str, load: Load) -> LoadPoint:
        """Measure a point under this load, for its own time if it has one; each repeat has another seed."""
        duration_s = load.duration_s if load.duration_s is not None else self.plan.duration_s
        plan, target = replace(self.plan, load=load, duration_s=duration_s), self.target
        self.on_begin(name)
        # No load follows these, so the service must first finish counting its work.
        is_over = plan.tail_s == 0 or (plan.is_closed and plan.requests is not None)
        runs = []
        for number in range(self.repeat):
            own = replace(plan, load=load.model_copy(update={"seed": load.seed + number}))
            watch = SplitWatch(target.url, target.api_key) if plan.sender == CORELANE_SENDER else None
            on_phase = (lambda _: None) if watch is None else watch.on_phase
            measured = run_load(target, self.workload, own, on_phase, self.on_tick)
            self.on_run(name, measured)
            split = None if watch is None else watch.result(is_over=is_over)
            if watch is not None and watch.problem is not None and watch.problem not in self.problems:
                self.problems.append(watch.problem)
            runs.append(summarise(measured, self.objective, split))
        return LoadPoint(name=name, load=described(plan), runs=runs, figures=point_figures(runs))


def ask_idle(target: Target, workload: Workload, plan: RunPlan, places: Iterable[int]) -> list[float]:
    """Send items one by one, keep their results in ``workload.idle``, and return the seconds; raises ServiceError."""
    return asyncio.run(_ask_idle(target, workload, plan, places))


async def _ask_idle(target: Target, workload: Workload, plan: RunPlan, places: Iterable[int]) -> list[float]:
    sender = make_sender(plan.sender, target, Manner(timeout_s=max(plan.timeout_s, 60.0), retries_refusals=True))
    await sender.open(1)
    times = []
    try:
        for number, place in enumerate(places, 1):
            reply = await sender.send(number, [workload.asked[place]])
            if reply.outcome != "ok" or reply.ended_s is None or reply.sent_s is None or len(reply.results) != 1:
                raise ServiceError(
                    f"an item sent alone was not answered: {reply.detail or reply.error}",
                    status=0,
                    problem_code=reply.error or reply.outcome,
                )
            workload.idle[place] = reply.results[0]
            times.append(reply.ended_s - reply.sent_s)
    finally:
        await sender.close()
    return times


def idle_places(workload: Workload, plan: RunPlan, *, is_open: bool = False) -> list[int]:
    """Return the items that a run may ask, each once; all of them if the load is not known yet."""
    if is_open or plan.is_closed:
        return workload.distinct(len(workload.asked), 1)[:MOST_IDLE]
    count = sum(1 for _ in plan.schedule().shots())
    return workload.distinct(count, plan.items)[:MOST_IDLE]


def probe(target: Target, workload: Workload, plan: RunPlan, cores: int) -> tuple[float, float]:
    """Return a rate that the service can bear, in requests a second, and the median time of a single item."""
    asked = [workload.pick(number)[0] for number in range(FIRST_PROBES + PROBES)]
    times = sorted(ask_idle(target, replace(workload, idle={}), plan, asked)[FIRST_PROBES:])
    latency_s = times[len(times) // 2]
    rate = MODEST * max(1, cores) / (latency_s * plan.items)
    return float(f"{rate:.2g}"), latency_s


def describe_service(target: Target, plan: RunPlan) -> ServiceInfo:
    """Return a service's description of itself, or only its address if it is not Corelane."""
    if plan.sender == CORELANE_SENDER:
        return read_service(target)
    return ServiceInfo(url=target.url, version="", model=target.model)
