"""Find out whether two reports really differ, or only by noise. Pure.

One repeat of a run is one observation: requests of one run share its queue and its time, so they are not independent.
Times and rates are compared by their logarithms, as shares; accuracy and failures in points.

- **Paired** reports come from one session that measured both sides in blocks A B B A. Each block gives one difference.
  Drift that is slower than a block cancels out. The differences get an interval by the t distribution.
- **Unpaired** reports were measured one after the other. Their interval is by Welch, widened for drift between
  sessions, which neither report shows (``DRIFT``). A report with one run has no spread of repeats, so the estimated
  sampling error of its latencies is used.

A difference is real if its whole interval lies beyond the smallest difference that matters (``LEAST``). All intervals
hold at once in 95 of 100 cases: each has the confidence 1 - 0.05/n for n compared figures (Bonferroni).
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Literal

from pydantic import BaseModel, Field

from corelane.errors import InvalidInput
from corelane.plugins.lab.figures import run_figures
from corelane.plugins.lab.schema import SCHEMA, Load, LoadPoint, Report, Run
from corelane.plugins.lab.stats import standard_error, t_reach

#: The smallest difference of a time or rate that matters. Two processes of the same build differ by as much, because of
#: their memory layout.
LEAST = 0.02

#: The smallest difference of EM, F1 or failures that matters, in percentage points.
LEAST_POINTS = 0.25

#: Standard deviation of a machine's speed from one session to another, as shared virtual machines have it.
DRIFT = 0.10

#: The chance that any figure is called different although nothing differs.
FALSE_ALARMS = 0.05

#: Least number of blocks of a paired comparison: two differences say nothing about their spread.
LEAST_BLOCKS = 3

#: The variance of a mean of latencies is assumed to be this much larger than for independent requests.
DESIGN_EFFECT = 4.0

#: Times and rates that are compared, and whether more is better.
SHARES = {"p50_s": False, "p95_s": False, "mean_s": False, "items_per_s": True}

#: The figures that are compared in points, and whether more is better.
POINTS = {"exact": True, "f1": True, "failed_percent": False}

#: Degrees of freedom of a variance that is assumed, not estimated.
KNOWN = 1e6


#: A report may have at most this share of invalid runs. They are left out.
MOST_INVALID = 0.25

#: What must be equal in both reports, by name and path.
SAME = {
    "way to submit": "way",
    "way to hear": "hearing",
    "workload": "workload.hash",
    "dtype of the model": "service.dtype",
    "machine": "machine.cpu",
    "cores of the machine": "machine.cores",
    "AMX": "machine.amx",
}


class FigureDifference(BaseModel):
    """One figure of two reports. The change is from A to B: a share, or points for accuracy and failures."""

    point: str
    figure: str
    unit: Literal["share", "points"]
    a: float
    b: float
    change: float
    low: float
    high: float
    pairs: int | None = Field(None, description="Blocks that gave a difference, if paired.")
    verdict: Literal["real", "noise"]
    direction: Literal["better", "worse", "same"]


class ReportComparison(BaseModel):
    """Two reports compared."""

    verdict: Literal["real", "noise"]
    paired: bool
    least: float
    drift: float | None = Field(description="The drift between sessions that was allowed for, if unpaired.")
    confidence: float = Field(description="Of each interval.")
    differences: list[FigureDifference]
    wrong: list[str] = Field(description="Results lost, given twice or wrong in B and not in A: always real.")
    unlike: list[str] = Field(description="What would have refused the comparison.")
    notes: list[str]

    @property
    def is_worse(self) -> bool:
        """Whether B is really worse in any figure."""
        return bool(self.wrong) or any(
            each.verdict == "real" and each.direction == "worse" for each in self.differences
        )


def compare(
    a: Report, b: Report, *, anyway: bool = False, least: float = LEAST, drift: float = DRIFT
) -> ReportComparison:
    """Return how B differs from A; raise InvalidInput if the runs cannot be compared, or have no figure in common."""
    reasons = unlike(a, b)
    if reasons and not anyway:
        raise InvalidInput("the runs are unlike (--anyway compares them):\n  " + "\n  ".join(reasons))
    points, notes = match(a, b, anyway=anyway)
    ours, theirs = a.pairing, b.pairing
    paired = bool(ours and theirs and ours.session == theirs.session and ours.side != theirs.side)
    changes = [each for left, right in points for each in _changes(left, right, paired=paired, drift=drift)]
    if not changes:
        raise InvalidInput("no point has valid runs in both reports")
    if any(each.is_guess for each in changes):
        notes.append("a report with one run shows no spread: repeat (--repeat 5), or pair (corelane bench ab)")
    if paired and any(each.pairs is None for each in changes):
        notes.append(f"fewer than {LEAST_BLOCKS} blocks are valid on both sides: compared as if unpaired")
    confidence = 1 - FALSE_ALARMS / len(changes)
    differences = [each.judge(confidence, least) for each in changes]
    wrong = wrong_results(a, b)
    return ReportComparison(
        verdict="real" if wrong or any(each.verdict == "real" for each in differences) else "noise",
        paired=paired,
        least=least,
        drift=None if paired else drift,
        confidence=confidence,
        differences=differences,
        wrong=wrong,
        unlike=reasons,
        notes=notes,
    )


def wrong_results(a: Report, b: Report) -> list[str]:
    """Return the faults of B's results that A's do not have."""
    found = []
    for name, text in (("lost", "lost"), ("twice", "given twice"), ("differ_from_idle", "unlike the idle service's")):
        left, right = (sum(getattr(check, name) or 0 for check in each.checks["results"]) for each in (a, b))
        if right and not left:
            found.append(f"{right:,} results {text}")
    return found


@dataclass(frozen=True, slots=True)
class FigureChange:
    """The change of one figure, in its logarithm or in points, and its standard error. ``a`` and ``b`` are means."""

    point: str
    figure: str
    a: float
    b: float
    change: float
    error: float
    freedom: float
    pairs: int | None
    is_guess: bool

    def judge(self, confidence: float, least: float) -> FigureDifference:
        """Return the difference with its interval and verdict."""
        is_share = self.figure in SHARES
        reach = t_reach(confidence, self.freedom) * self.error
        low, high = self.change - reach, self.change + reach
        margin = math.log1p(least) if is_share else LEAST_POINTS
        level, back = (math.exp, math.expm1) if is_share else (float, float)
        is_better = (self.change > 0) == (SHARES | POINTS)[self.figure]
        return FigureDifference(
            point=self.point,
            figure=self.figure,
            unit="share" if is_share else "points",
            a=level(self.a),
            b=level(self.b),
            change=back(self.change),
            low=back(low),
            high=back(high),
            pairs=self.pairs,
            verdict="real" if low > margin or high < -margin else "noise",
            direction="same" if abs(self.change) < 1e-12 else "better" if is_better else "worse",
        )


def _changes(left: LoadPoint, right: LoadPoint, *, paired: bool, drift: float) -> Iterable[FigureChange]:
    """Yield the changes of figures that both points have in all their valid runs."""
    a = [run for run in left.runs if not run.invalid]
    b = [run for run in right.runs if not run.invalid]
    for figure in (*SHARES, *POINTS) if a and b else ():
        ours, theirs = ([value for run in runs if (value := _value(run, figure)) is not None] for runs in (a, b))
        if len(ours) < len(a) or len(theirs) < len(b) or (figure == "failed_percent" and not any(ours + theirs)):
            continue
        blocks = block_differences(a, ours, b, theirs) if paired else []
        pairs = len(blocks) if len(blocks) >= LEAST_BLOCKS else None
        if pairs is not None:
            change, error, freedom = statistics.fmean(blocks), standard_error(blocks), pairs - 1.0
        else:
            change = statistics.fmean(theirs) - statistics.fmean(ours)
            is_share = figure in SHARES
            guesses = [_sampling_error(runs) if is_share else 0.0 for runs in (a, b)]
            error, freedom = _unpaired_error((ours, theirs), guesses, drift if is_share else 0.0)
        x, y, is_guess = statistics.fmean(ours), statistics.fmean(theirs), min(len(ours), len(theirs)) < 2
        yield FigureChange(left.name, figure, x, y, change, error, freedom, pairs, pairs is None and is_guess)


def _unpaired_error(sides: Iterable[Sequence[float]], guesses: Iterable[float], drift: float) -> tuple[float, float]:
    """Return a difference's standard error and degrees of freedom, by Welch; ``guesses`` has that of a lone value."""
    parts = [(2 * drift**2, KNOWN)]
    for values, guess in zip(sides, guesses, strict=True):
        if len(values) > 1:
            parts.append((standard_error(values) ** 2, len(values) - 1.0))
        else:
            parts.append((guess**2, KNOWN))
    total = sum(part for part, _ in parts)
    if not total:
        return 0.0, KNOWN
    return math.sqrt(total), min(KNOWN, total**2 / sum(part**2 / freedom for part, freedom in parts))


def block_differences(
    a: Sequence[Run], ours: Sequence[float], b: Sequence[Run], theirs: Sequence[float]
) -> list[float]:
    """Return B's mean minus A's mean for each complete block, which has two runs of each side."""
    blocks: dict[int, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for side, (runs, values) in enumerate(((a, ours), (b, theirs))):
        for run, value in zip(runs, values, strict=True):
            if run.block is not None:
                blocks[run.block][side].append(value)
    return [statistics.fmean(y) - statistics.fmean(x) for x, y in blocks.values() if len(x) == len(y) == 2]


def _value(run: Run, figure: str) -> float | None:
    """Return the value that is compared: the logarithm of a time or rate, or points; None if it was not measured."""
    if figure in SHARES:
        value = run_figures(run).get(figure)
        return math.log(value) if value else None
    if figure == "failed_percent":
        return 100 * (run.failed + run.refused + run.unfinished) / run.requests if run.requests else None
    return getattr(run.results, figure, None)


def _sampling_error(runs: Sequence[Run]) -> float:
    """Return the standard error of a run's mean latency as a share of that mean, estimated from its requests."""
    values = runs[0].latencies
    if len(values) < 2 or not statistics.fmean(values):
        return 0.0
    return math.sqrt(DESIGN_EFFECT) * standard_error(values) / statistics.fmean(values)


def unlike(a: Report, b: Report) -> list[str]:
    """Return each difference that makes two reports incomparable."""
    read = {name: attrgetter(path) for name, path in SAME.items()}
    reasons = [f"{name}: {of(a)} in A, {of(b)} in B" for name, of in read.items() if of(a) != of(b)]
    for name, report in (("A", a), ("B", b)):
        if report.schema_ != SCHEMA:
            reasons.append(f"schema: {name} is {report.schema_}, this version reads {SCHEMA}")
        runs = [run for point in report.points for run in point.runs]
        invalid = [run for run in runs if run.invalid]
        if len(invalid) > MOST_INVALID * len(runs):
            reasons.append(f"{name} is invalid in {len(invalid)} runs: {invalid[0].invalid[0]}")
    ours, theirs = ({load_key(each.load) for each in report.points} for report in (a, b))
    if not ours & theirs:
        loads = (", ".join(each.load.text for each in report.points) or "none" for report in (a, b))
        reasons.append("load: {} in A, {} in B".format(*loads))
    return reasons


def match(a: Report, b: Report, *, anyway: bool) -> tuple[list[tuple[LoadPoint, LoadPoint]], list[str]]:
    """Return pairs of points with the same load, or in their order if ``anyway`` and none has, and notes on others."""
    # Points of a preset may have one load and differ by name; other points may have been named otherwise.
    pairs = _pairs(a, b, lambda point: (point.name, load_key(point.load)))
    pairs = pairs or _pairs(a, b, lambda point: load_key(point.load))
    if not pairs and anyway:
        pairs = list(zip(a.points, b.points, strict=False))
    if not pairs:
        raise InvalidInput("no point of the reports has the same load")
    alone = len(a.points) + len(b.points) - 2 * len(pairs)
    return pairs, [f"{alone} points are in one report only and are left out"] if alone else []


def _pairs(a: Report, b: Report, key: Callable[[LoadPoint], Hashable]) -> list[tuple[LoadPoint, LoadPoint]]:
    theirs = {key(each): each for each in b.points}
    return [(each, theirs[key(each)]) for each in a.points if key(each) in theirs]


def load_key(load: Load) -> str:
    """Return what two equal loads have in common: everything but the seed, and the path of a trace."""
    return load.model_dump_json(exclude={"seed": True, "detail": {"path"}})
