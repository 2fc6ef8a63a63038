"""Points: a load measured several times, with what the service says of itself, and with a check of its answers.

Sweeps, presets and the search for a rate are made of points.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from corelane.bench.figures import point_figures, summarise
from corelane.bench.generator import CORELANE_SENDER, Measured, Plan, Progress, Target, run_load
from corelane.bench.schema import Load, Point, Split
from corelane.bench.senders import Manner, make_sender
from corelane.bench.split import SplitWatch
from corelane.bench.workload import Questions
from corelane.errors import ServiceError

#: Lone questions that are asked to choose a rate.
PROBES = 8

#: The part of what the cores could do, by the time of a lone question, that is offered where no rate is given.
MODEST = 0.3

OnRun = Callable[[Measured], object]


def measure_point(
    target: Target,
    questions: Questions,
    plan: Plan,
    *,
    name: str,
    repeat: int = 1,
    objective: str | None = None,
    on_tick: Callable[[Progress], object] | None = None,
    on_run: OnRun | None = None,
) -> Point:
    """Offer a load ``repeat`` times and return its figures; ``on_run`` is given what each time measured.

    Repeats draw arrivals of seeds of their own: the interval covers them too.
    """
    runs = []
    for number in range(repeat):
        load = plan.load.model_copy(update={"seed": plan.load.seed + number})
        measured, split = _measure(target, questions, replace(plan, load=load), on_tick)
        if on_run is not None:
            on_run(measured)
        runs.append(summarise(measured, objective, split, measured.answers))
    return Point(name=name, load=described(plan), runs=runs, figures=point_figures(runs))


def described(plan: Plan) -> Load:
    """Return the load of a plan with its time and bounds, as a report has it."""
    detail = plan.load.detail | ({} if plan.requests is None else {"requests": plan.requests})
    return plan.load.model_copy(update={"duration_s": plan.duration_s, "detail": detail})


def _measure(
    target: Target, questions: Questions, plan: Plan, on_tick: Callable[[Progress], object] | None
) -> tuple[Measured, Split | None]:
    """Run the load once; with what the service says of itself, if it is Corelane and shows its metrics."""
    if plan.sender != CORELANE_SENDER:
        return run_load(target, questions, plan, None, on_tick), None
    watch = SplitWatch(target.url, target.api_key)
    measured = run_load(target, questions, plan, watch.on_phase, on_tick)
    is_over = plan.tail_s == 0 or (plan.is_closed and plan.requests is not None)
    return measured, watch.result(is_over=is_over)


def ask_idle(
    target: Target,
    questions: Questions,
    plan: Plan,
    places: Iterable[int],
    on_answer: Callable[[int], object] | None = None,
) -> list[float]:
    """Ask questions alone, one after the other; keep their answers in ``questions.idle``, and return the times taken.

    Raises ServiceError if one is not answered.
    """
    return asyncio.run(_ask_idle(target, questions, plan, list(places), on_answer or (lambda _: None)))


async def _ask_idle(
    target: Target, questions: Questions, plan: Plan, places: list[int], on_answer: Callable[[int], object]
) -> list[float]:
    sender = make_sender(plan.sender, target, Manner(timeout_s=max(plan.timeout_s, 60.0), retries_refusals=True))
    await sender.open(1)
    times = []
    try:
        for number, place in enumerate(places):
            reply = await sender.send(number, [questions.asked[place]])
            if reply.outcome != "ok" or reply.ended_s is None or reply.sent_s is None or len(reply.results) != 1:
                raise ServiceError(
                    f"the idle service did not answer a question: {reply.detail}",
                    status=0,
                    problem_code=str(reply.error),
                )
            questions.idle[place] = reply.results[0]
            times.append(reply.ended_s - reply.sent_s)
            on_answer(number + 1)
    finally:
        await sender.close()
    return times


@dataclass(frozen=True, slots=True)
class Probe:
    """A modest rate, and why it is that."""

    rate_per_s: float
    latency_s: float
    cores: int


def probe(target: Target, questions: Questions, plan: Plan, cores: int) -> Probe:
    """Return a rate that the service bears: a share of what its cores could do by a lone question's time."""
    times = sorted(ask_idle(target, replace(questions, idle={}), plan, questions.distinct(PROBES, 1)))
    latency_s = times[len(times) // 2]
    rate = MODEST * max(1, cores) / (latency_s * plan.items)
    return Probe(float(f"{rate:.2g}"), latency_s, cores)
