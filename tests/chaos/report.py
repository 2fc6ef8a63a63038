"""What a chaos run prints at its end, and writes as JSON if asked to."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.chaos.audit import Findings
from tests.chaos.hooks import STRETCH_S, Hooks
from tests.chaos.load import Load
from tests.chaos.scene import Scene


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
    #: Time from the end of each fault until its victims were back, in seconds, by kind of fault.
    whole_s: dict[str, list[float]]
    #: Webhooks that came in each stretch of ten seconds.
    posts: list[int]
    #: Time until a job was accepted, answered and told of, after a Redis killed alone was back and after the last
    #: fault; and the longest time without a webhook between.
    sending_s: dict[str, float]
    #: Whether `serve` had its own Redis, or ours behind a proxy.
    redis: str
    #: How parts ended, as ``api SIGKILL``.
    ends: dict[str, int]
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
        self,
        *,
        seed: int,
        engine: str,
        seconds: float,
        scene: Scene,
        load: Load,
        hooks: Hooks,
        sending_s: dict[str, float],
        findings: Findings,
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
            recovery_s=by_kind((each.what, each.seconds) for each in recoveries),
            never_recovered=sum(each.seconds is None for each in recoveries)
            + sum(back.seconds is None for back in scene.returns),
            whole_s=by_kind((back.fault, back.seconds) for back in scene.returns),
            posts=hooks.over_time(),
            sending_s={what: round(seconds, 2) for what, seconds in sending_s.items()},
            redis="own" if scene.fleet.proxy is None else "proxied",
            ends=dict(scene.fleet.ends()),
            points=dict(scene.fleet.points_reached()),
            findings=facts,
        )
        self.rounds.append(done)
        return done

    def lines(self) -> list[str]:
        """Return the report as text."""
        found = [line for each in self.rounds for line in lines_of(each)]
        if len(self.rounds) > 1:
            found += total_lines(self.rounds)
        return [*found, *(f"{what}: {seconds:.2f} s" for what, seconds in self.measured.items())]

    def write(self, path: Path) -> None:
        """Return the report as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(asdict(self), indent=2) + "\n")


def by_kind(times: Iterable[tuple[str, float | None]]) -> dict[str, list[float]]:
    """Group times by what they were measured for, sorted; leave out those that were never over."""
    found: dict[str, list[float]] = {}
    for what, seconds in times:
        if seconds is not None:
            found.setdefault(what, []).append(round(seconds, 2))
    return {what: sorted(times) for what, times in sorted(found.items())}


def lines_of(each: Round) -> list[str]:
    """One round as text."""
    found = each.findings
    lines = [
        f"seed {each.seed}, {each.engine} engine, {each.redis} Redis, {each.seconds:.0f} s: "
        f"{sum(each.faults.values())} faults, "
        f"{found['jobs']} jobs, {found['items']} items; lost {found['lost']}, "
        f"repeated results {found['repeated_results']}, changed results {found['changed_results']}, "
        f"repeated events {found['repeated_events']}, missing events {found['missing_events']}; "
        f"webhooks {found['events']}, posted again {found['repeated_posts']}, missing {found['missing_posts']}",
        f"  faults: {listed(each.faults)}",
        f"  submits: {listed(each.submits)}; untold jobs {found['untold_jobs']}, "
        f"refused yet kept {found['refused_yet_kept']}",
        f"  final: {listed(found['statuses'])}; items failed with worker_lost {found['worker_lost']}, "
        f"results without their id {found['nameless']}",
        f"  items of the dead answered: {times_line(each.recovery_s)}; never {each.never_recovered}",
        f"  back after: {times_line(each.whole_s)}",
        f"  webhooks every {STRETCH_S} s: {' '.join(map(str, each.posts))}",
        f"  webhooks again, s: {listed(each.sending_s)}",
    ]
    if each.points:
        lines.append(f"  killed at fault points: {listed(each.points)}")
    if each.missed:
        lines.append(f"  found no victim: {listed(each.missed)}")
    lines.append(f"  ends: {listed(each.ends)}")
    return lines + [f"  PROBLEM {text}" for text in each.problems]


def total_lines(rounds: list[Round]) -> list[str]:
    """All rounds together as text."""
    names = (
        *("jobs", "items", "lost", "repeated_results", "changed_results", "repeated_events", "missing_events"),
        *("events", "repeated_posts", "missing_posts"),
    )
    sums = {name: sum(each.findings[name] for each in rounds) for name in names}
    faults: Counter[str] = Counter()
    times: dict[str, list[float]] = {}
    whole: dict[str, list[float]] = {}
    sending: dict[str, list[float]] = {}
    for each in rounds:
        faults.update(each.faults)
        for what, some in each.recovery_s.items():
            times.setdefault(what, []).extend(some)
        for what, some in each.whole_s.items():
            whole.setdefault(what, []).extend(some)
        for what, seconds in each.sending_s.items():
            sending.setdefault(what, []).append(seconds)
    return [
        f"in all: {len(rounds)} seeds, {sum(each.seconds for each in rounds) / 60:.0f} min, {faults.total()} faults, "
        + ", ".join(f"{name.replace('_', ' ')} {count}" for name, count in sums.items()),
        f"  faults: {listed(dict(sorted(faults.items())))}",
        f"  items of the dead answered: {times_line(times)}; never {sum(each.never_recovered for each in rounds)}",
        f"  back after: {times_line(whole)}",
        f"  webhooks again: {times_line(sending)}",
    ]


def times_line(times: dict[str, list[float]]) -> str:
    """Return the times that half and nineteen in twenty stay below, by what was measured."""
    parts = []
    for what, some in times.items():
        ranked = sorted(some)
        p50, p95 = (ranked[min(len(ranked) - 1, int(len(ranked) * share))] for share in (0.5, 0.95))
        parts.append(f"{what} p50 {p50:.2f} s, p95 {p95:.2f} s ({len(some)})")
    return ", ".join(parts) or "nothing"


def listed(counts: dict[str, Any]) -> str:
    """Return a mapping as ``name count`` pairs."""
    return ", ".join(f"{name} {count}" for name, count in counts.items()) or "none"
