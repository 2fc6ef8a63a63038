"""The figures of a run, from its requests. Pure.

Latencies are of requests that were answered in full. Failures are counted separately. Throughput counts all requests
that ended within the measured part, even if they were due earlier: under overload that is what the service can do.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from corelane.errors import InvalidInput
from corelane.plugins.lab.schema import (
    ErrorCount,
    Generator,
    Goodput,
    Interval,
    LoadPoint,
    Request,
    ResultCheck,
    Run,
    ServiceSplit,
)
from corelane.plugins.lab.stats import interval, latencies, spread, thinned, timeline

#: Latencies kept in a report, by rank, so that its size is bounded.
MOST_LATENCIES = 5000

#: If 5 % of requests are sent later than this, in seconds, the generator did not keep up.
MOST_LATENESS_S = 0.010

#: If the generator achieved less than this share of the requested rate, it did not keep up.
LEAST_ACHIEVED = 0.98

#: A process of a closed loop that used the CPU for more than this share of the time measured itself, not the service.
MOST_CPU_SHARE = 0.90

#: A time with a limit, such as `200ms`, `latency<0.2s`, `p95=50 ms`.
LIMIT = re.compile(r"(?:(\w+)\s*(?:=|<=?)\s*)?([0-9]*\.?[0-9]+)\s*(ms|s)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Measurement:
    """The measurements of a run; times count from its start."""

    requests: list[Request]
    generator: Generator
    window_s: tuple[float, float]
    began_at: str
    results: ResultCheck | None = None


@dataclass(frozen=True, slots=True)
class Objective:
    """An upper limit for the time that ``timed`` names."""

    timed: str
    limit_s: float

    def __str__(self) -> str:
        return f"{self.timed}<={1000 * self.limit_s:g}ms"

    def is_met(self, request: Request) -> bool:
        """Return whether a request is good: it was answered, and `latency`, `latency_sent` or `first` is short."""
        since = request.sent_s if self.timed == "latency_sent" else request.intended_s
        until = request.first_s if self.timed == "first" else request.ended_s
        return request.outcome == "ok" and None not in (since, until) and until - since <= self.limit_s  # type: ignore[operator]


def parse_objective(text: str, names: Sequence[str] = ("latency", "latency_sent", "first")) -> Objective:
    """Return the objective of a text such as `first<50ms`; a text such as `200ms` limits the first of ``names``."""
    found = LIMIT.fullmatch(text.strip())
    name = (found[1] or names[0]).lower() if found is not None else ""
    if found is None or name not in names or not float(found[2]):
        raise InvalidInput(
            f"'{text}' is no objective: write a time, as 200ms, of {', '.join(names)}, as {names[0]}<0.2s"
        )
    return Objective(name, float(found[2]) / (1000 if found[3].lower() == "ms" else 1))


def summarise(measured: Measurement, objective: Objective | None = None, split: ServiceSplit | None = None) -> Run:
    """Return the figures of a run."""
    start_s, end_s = measured.window_s
    length_s = max(end_s - start_s, 1e-9)
    requests = [each for each in measured.requests if each.phase == "measured"]
    ok = [each for each in requests if each.outcome == "ok" and each.ended_s is not None]
    done = [each for each in measured.requests if each.outcome == "ok" and start_s <= (each.ended_s or -1) <= end_s]
    outcomes = Counter(each.outcome for each in requests)
    times = sorted(latencies(ok))
    return Run(
        began_at=measured.began_at,
        measured_s=length_s,
        measured_from_s=start_s,
        requests=len(requests),
        items=sum(each.items for each in requests),
        ok=outcomes["ok"],
        refused=outcomes["refused"],
        failed=outcomes["error"],
        unfinished=outcomes["unfinished"],
        retries=sum(each.retries for each in requests),
        generator=measured.generator,
        latency=spread(times),
        latency_sent=spread(each.ended_s - each.sent_s for each in ok if each.ended_s and each.sent_s is not None),
        first=spread(each.first_s - each.intended_s for each in ok if each.first_s is not None),
        requests_per_s=len(done) / length_s,
        items_per_s=sum(each.items for each in done) / length_s,
        tokens_per_s=sum(each.tokens for each in done) / length_s,
        goodput=goodput(requests, objective, length_s) if objective is not None else None,
        errors=errors(requests),
        server=split,
        results=measured.results,
        timeline=timeline(measured.requests),
        latencies=thinned(times, MOST_LATENCIES),
        invalid=invalid(measured.generator, requests),
    )


def goodput(requests: Sequence[Request], objective: Objective, length_s: float) -> Goodput:
    """Return the share of measured requests that met the objective, and how many items a second these had."""
    good = [each for each in requests if objective.is_met(each)]
    share = len(good) / len(requests) if requests else 0.0
    return Goodput(objective=str(objective), share=share, items_per_s=sum(each.items for each in good) / length_s)


def errors(requests: Iterable[Request]) -> list[ErrorCount]:
    """Return failures and refusals by class, the most frequent first, each with its first sample."""
    failed = (each for each in requests if each.outcome not in ("ok", "unfinished") or each.error is not None)
    return _counted((each.error or each.outcome, 1, each.detail or "") for each in failed)


def point_errors(point: LoadPoint) -> list[ErrorCount]:
    """Return a point's failures by class, the most frequent first, then the requests without a result in time."""
    found = _counted((error.code, error.count, error.sample) for run in point.runs for error in run.errors)
    if unfinished := sum(run.unfinished for run in point.runs):
        sample = "no result when time was up; latencies leave them out"
        found.append(ErrorCount(code="unfinished", count=unfinished, sample=sample))
    return found


def _counted(rows: Iterable[tuple[str, int, str]]) -> list[ErrorCount]:
    """Return codes with their counts, the most frequent first, each with its first sample that says something."""
    counts: Counter[str] = Counter()
    samples: dict[str, str] = {}
    for code, count, sample in rows:
        counts[code] += count
        samples[code] = samples.get(code) or sample
    return [ErrorCount(code=code, count=count, sample=samples[code]) for code, count in counts.most_common()]


def invalid(generator: Generator, requests: Sequence[Request]) -> list[str]:
    """Return why a run proves nothing: the generator did not keep up, or no request was answered."""
    reasons = []
    late, requested = generator.lateness, generator.requested_per_s
    if late is not None and late.p95 > MOST_LATENESS_S:
        reasons.append(
            f"the generator was late: 5 % of requests were sent over {1000 * late.p95:,.0f} ms after they were due, "
            f"of {1000 * MOST_LATENESS_S:.0f} ms at most"
        )
    if requested and generator.achieved_per_s < LEAST_ACHIEVED * requested:
        share = generator.achieved_per_s / requested
        reasons.append(
            f"the generator achieved {generator.achieved_per_s:,.1f} of {requested:,.1f} requests/s ({share:.1%}), "
            f"of {LEAST_ACHIEVED:.0%} at least"
        )
    if not requested and generator.cpu_share > MOST_CPU_SHARE:
        reasons.append(
            f"a process of the generator was at work {generator.cpu_share:.0%} of the time, of {MOST_CPU_SHARE:.0%} at "
            "most: give it more --processes"
        )
    if not requests:
        reasons.append("no request belongs to the measured part")
    elif not any(each.outcome == "ok" for each in requests):
        reasons.append("no request was answered")
    return reasons


def point_figures(runs: Sequence[Run]) -> dict[str, Interval]:
    """Return the figures of a point: each over all runs that have it."""
    rows = [run_figures(run) for run in runs]
    names = [name for name in rows[0] if all(name in row for row in rows)] if rows else []
    return {name: interval([row[name] for row in rows]) for name in names}


def run_figures(run: Run) -> dict[str, float]:
    """Return the figures of a run by their names in a point."""
    figures = {"items_per_s": run.items_per_s, "requests_per_s": run.requests_per_s}
    if run.latency is not None:
        times = run.latency
        figures |= {"p50_s": times.p50, "p95_s": times.p95, "p99_s": times.p99, "mean_s": times.mean}
    if run.goodput is not None:
        figures["goodput"] = run.goodput.share
    return figures
