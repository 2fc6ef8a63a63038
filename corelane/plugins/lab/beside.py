"""Run a batch while interactive requests arrive: the time of the batch, and its effect on the requests.

Requests arrive at a steady rate, first alone, then while the batch runs, then alone again. Their latency counts from
when they were due. A request belongs to the part in which it was due.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from corelane.errors import SetupError
from corelane.plugins.lab.batch_work import BatchWork
from corelane.plugins.lab.figures import MOST_LATENESS_S
from corelane.plugins.lab.generator import Background
from corelane.plugins.lab.load import RunPlan
from corelane.plugins.lab.results import ResultJudge
from corelane.plugins.lab.schema import Beside, Load, Request, ResultCheck, Way
from corelane.plugins.lab.senders import Reply, Target
from corelane.plugins.lab.stats import latencies, spread, thinned, timeline
from corelane.plugins.lab.workload import Workload

Part = Literal["before", "during", "after"]

#: Receives the progress: the part, the time since the requests began, and the number of items done.
Tell = Callable[[Part, float, int], object]

#: Time between two polls of a batch, in seconds: before its first result, and after. Its times are late by up to this.
FIRST_POLL_S, POLL_S = 0.05, 0.25

#: Most points of a progress curve.
MOST_POINTS = 400


@dataclass(frozen=True, slots=True)
class BesidePlan:
    """The rate of requests, seconds around the batch, its kind and owner; with ``cut_s`` it is canceled after that."""

    rate_per_s: float
    warmup_s: float = 5.0
    before_s: float = 30.0
    after_s: float = 30.0
    cut_s: float | None = None
    seed: int = 0
    timeout_s: float = 60.0
    way: str = "lines"
    owner: Literal["own", "foreign"] = "own"
    items_per_job: int = 1

    @property
    def requests(self) -> RunPlan:
        """The plan of the requests: lone items, or small jobs of them."""
        load = Load(kind="poisson", rate_per_s=self.rate_per_s, seed=self.seed)
        way: Way = "item" if self.items_per_job == 1 else "job"
        return RunPlan(load=load, way=way, items_per_job=self.items_per_job, timeout_s=self.timeout_s)


@dataclass(slots=True)
class BatchTimes:
    """The observed times of a batch, in seconds since it was submitted."""

    submitted_s: float
    accepted_s: float = 0.0
    first_s: float | None = None
    ended_s: float = 0.0
    canceled: bool = False
    progress: list[tuple[float, int]] = field(default_factory=lambda: [(0.0, 0)])


def run_beside(
    target: Target,
    workload: Workload,
    work: BatchWork,
    plan: BesidePlan,
    tell: Tell = lambda _part, _at_s, _done: None,
) -> Beside:
    """Run the batch with requests around it; raise SetupError if a part had none."""
    with Background(target, workload, plan.requests) as background:
        _pass(background, plan.warmup_s + plan.before_s, lambda: tell("before", background.at_s, 0))
        times = _run_batch(background, work, plan, tell)
        _pass(background, plan.after_s, lambda: tell("after", background.at_s, times.progress[-1][1]))
        requests, results = background.stop()
    batch_results = None if times.canceled and work.places else check_batch(workload, work)
    return describe(requests, times, work.items, plan, results, batch_results)


def _pass(background: Background, seconds: float, tell: Callable[[], object]) -> None:
    until_s = time.monotonic() + seconds
    while (left := until_s - time.monotonic()) > 0:
        time.sleep(min(POLL_S, left))
        background.watch()
        tell()


def _run_batch(background: Background, work: BatchWork, plan: BesidePlan, tell: Tell) -> BatchTimes:
    """Submit the batch and watch it to its end."""
    times = BatchTimes(background.at_s)
    work.submit()
    times.accepted_s = background.at_s - times.submitted_s
    while True:
        standing, since_s = work.poll(), background.at_s - times.submitted_s
        if standing.done and times.first_s is None:
            times.first_s = since_s
        if standing.done != times.progress[-1][1]:
            times.progress.append((since_s, standing.done))
        background.watch()
        tell("during", background.at_s, standing.done)
        if standing.is_final:
            break
        if plan.cut_s is not None and since_s >= plan.cut_s:
            work.cancel()
            times.canceled = True
            break
        time.sleep(FIRST_POLL_S if times.first_s is None else POLL_S)
    times.ended_s = background.at_s - times.submitted_s
    return times


def describe(
    requests: Sequence[Request],
    times: BatchTimes,
    items: int,
    plan: BesidePlan,
    results: ResultCheck | None = None,
    batch_results: ResultCheck | None = None,
) -> Beside:
    """Return the results for the report; raise SetupError if no request was answered in a part. Pure."""
    start_s, end_s = times.submitted_s, times.submitted_s + times.ended_s
    parts: dict[Part, list[Request]] = {"before": [], "during": [], "after": []}
    for each in requests:
        if each.intended_s >= plan.warmup_s:
            at_s = each.intended_s
            part: Part = "before" if at_s < start_s else "during" if at_s < end_s else "after"
            parts[part].append(each)
    spreads = {part: spread(latencies(each)) for part, each in parts.items()}
    before, during, after = (spreads[part] for part in ("before", "during", "after"))
    if before is None or during is None or after is None:
        missing = ", ".join(part for part, found in spreads.items() if found is None)
        raise SetupError(f"no request was answered {missing} the batch: give a higher rate, or a larger batch")
    counted = [each for part in parts.values() for each in part]
    lateness = spread(each.sent_s - each.intended_s for each in counted if each.sent_s is not None)
    failed = sum(each.outcome != "ok" for each in counted)
    invalid = []
    if lateness is not None and lateness.p95 > MOST_LATENESS_S:
        invalid.append(f"the generator was late: 5 % of requests were sent over {1000 * lateness.p95:,.0f} ms late")
    if failed > len(counted) / 2:
        invalid.append(f"{failed} of {len(counted)} requests were not answered")
    return Beside(
        items=items,
        makespan_s=times.ended_s,
        first_result_s=times.first_s,
        items_per_s=times.progress[-1][1] / times.ended_s if times.ended_s else 0.0,
        progress=thinned(times.progress, MOST_POINTS),
        before=before,
        during=during,
        after=after,
        results=results,
        batch_results=batch_results,
        **{name: getattr(plan, name) for name in ("way", "owner", "rate_per_s", "items_per_job")},
        accepted_s=times.accepted_s,
        canceled=times.canceled,
        submitted_at_s=start_s,
        failed=failed,
        lateness=lateness,
        timeline=timeline(requests),
        invalid=invalid,
    )


def check_batch(workload: Workload, work: BatchWork) -> ResultCheck:
    """Return whether each item of a batch was answered once, and the quality of the results."""
    if not work.places:
        return ResultCheck(checked=work.poll().done, differ_from_idle=work.wrong)
    return ResultJudge(workload).judge(work.places, Reply(outcome="ok", results=list(work.results())))
