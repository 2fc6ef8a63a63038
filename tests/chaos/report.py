"""What a chaos run prints at its end, and writes as JSON if asked to."""

import json
import re
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.audit import Findings
from tests.chaos.faults import Scene
from tests.chaos.fleet import ChaosFleet
from tests.chaos.load import Load
from tests.chaos.watch import Recovery


@dataclass
class Round:
    """One seed: its faults, its load, what the audit found."""

    seed: int
    engine: str
    seconds: float
    faults: dict[str, int]
    missed: dict[str, int]
    submits: dict[str, int]
    #: Recovery times in seconds, by what was killed.
    recovery_s: dict[str, list[float]]
    never_recovered: int
    #: Part → exit statuses of lives that ended though nobody had asked; -9 at a fault point.
    unasked_ends: dict[str, list[int]]
    #: Fault points at which a process killed itself.
    points: dict[str, int]
    findings: dict[str, Any]

    @property
    def problems(self) -> list[str]:
        return list(self.findings["problems"])


@dataclass
class Report:
    """All rounds of this session, and figures measured besides."""

    rounds: list[Round] = field(default_factory=list)
    measured: dict[str, float] = field(default_factory=dict)

    def add(
        self, *, seed: int, engine: str, seconds: float, scene: Scene, load: Load, fleet: ChaosFleet, findings: Findings
    ) -> Round:
        """Note a round."""
        recoveries = scene.watch.sight.recoveries
        facts = {name: value for name, value in vars(findings).items() if not name.startswith("_")}
        facts["statuses"] = {str(status): count for status, count in findings.statuses.items()}
        done = Round(
            seed=seed,
            engine=engine,
            seconds=round(seconds, 1),
            faults=dict(sorted(scene.struck.items())),
            missed=dict(scene.missed),
            submits=dict(load.outcomes),
            recovery_s=by_kind(recoveries),
            never_recovered=sum(each.seconds is None for each in recoveries),
            unasked_ends={part.name: part.unasked for part in fleet.parts.values() if part.unasked},
            points=points_reached(fleet),
            findings=facts,
        )
        self.rounds.append(done)
        return done

    def lines(self) -> list[str]:
        """The report as text."""
        found = [line for each in self.rounds for line in lines_of(each)]
        if len(self.rounds) > 1:
            found += total_lines(self.rounds)
        return [*found, *(f"{what}: {seconds:.2f} s" for what, seconds in self.measured.items())]

    def write(self, path: Path) -> None:
        """The report as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=2) + "\n")


def points_reached(fleet: ChaosFleet) -> dict[str, int]:
    """How often processes killed themselves at each fault point, as their logs say."""
    logs = [part.log.read_text(errors="replace") for part in fleet.parts.values()]
    return dict(Counter(point for log in logs for point in re.findall(r"^fault point (\S+)$", log, re.MULTILINE)))


def by_kind(recoveries: list[Recovery]) -> dict[str, list[float]]:
    """Recovery times by what was killed, sorted."""
    found: dict[str, list[float]] = {}
    for each in recoveries:
        if each.seconds is not None:
            found.setdefault(each.what, []).append(round(each.seconds, 2))
    return {what: sorted(times) for what, times in sorted(found.items())}


def lines_of(each: Round) -> list[str]:
    """One round as text."""
    found = each.findings
    lines = [
        f"seed {each.seed}, {each.engine} engine, {each.seconds:.0f} s: {sum(each.faults.values())} faults, "
        f"{found['jobs']} jobs, {found['items']} items; lost {found['lost']}, "
        f"repeated results {found['repeated_results']}, changed results {found['changed_results']}, "
        f"repeated events {found['repeated_events']}, missing events {found['missing_events']}",
        f"  faults: {listed(each.faults)}",
        f"  submits: {listed(each.submits)}; untold jobs {found['untold_jobs']}, "
        f"refused yet kept {found['refused_yet_kept']}",
        f"  final: {listed(found['statuses'])}; items failed with worker_lost {found['worker_lost']}, "
        f"results without their id {found['nameless']}",
        f"  recovery: {recovery_line(each.recovery_s)}; never {each.never_recovered}",
    ]
    if each.points:
        lines.append(f"  killed at fault points: {listed(each.points)}")
    if each.missed:
        lines.append(f"  found no victim: {listed(each.missed)}")
    if each.unasked_ends:
        lines.append(f"  ended unasked: {listed(each.unasked_ends)}")
    return lines + [f"  PROBLEM {text}" for text in each.problems]


def total_lines(rounds: list[Round]) -> list[str]:
    """All rounds together as text."""
    names = ("jobs", "items", "lost", "repeated_results", "changed_results", "repeated_events", "missing_events")
    sums = {name: sum(each.findings[name] for each in rounds) for name in names}
    faults: Counter[str] = Counter()
    times: dict[str, list[float]] = {}
    for each in rounds:
        faults.update(each.faults)
        for what, some in each.recovery_s.items():
            times.setdefault(what, []).extend(some)
    return [
        f"in all: {len(rounds)} seeds, {sum(each.seconds for each in rounds) / 60:.0f} min, {faults.total()} faults, "
        + ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in sums.items()),
        f"  faults: {listed(dict(sorted(faults.items())))}",
        f"  recovery: {recovery_line(times)}; never {sum(each.never_recovered for each in rounds)}",
    ]


def recovery_line(times: dict[str, list[float]]) -> str:
    """Half and nineteen in twenty of the recoveries, by what was killed."""
    parts = []
    for what, some in times.items():
        ranked = sorted(some)
        p50, p95 = (ranked[min(len(ranked) - 1, int(len(ranked) * share))] for share in (0.5, 0.95))
        parts.append(f"after a {what}'s death p50 {p50:.2f} s, p95 {p95:.2f} s ({len(some)})")
    return ", ".join(parts) or "nothing was held"


def listed(counts: dict[str, Any]) -> str:
    """A mapping as ``name count`` pairs."""
    return ", ".join(f"{name} {count}" for name, count in counts.items()) or "none"
