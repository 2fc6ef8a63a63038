"""What a chaos run prints at its end."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.chaos.audit import Findings
from tests.chaos.hooks import STRETCH_S, Hooks
from tests.chaos.load import Load
from tests.chaos.scene import Scene


@dataclass
class Report:
    """The rounds of this session, each as lines, and figures measured besides."""

    rounds: list[list[str]] = field(default_factory=list)
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
    ) -> None:
        """Note a round."""
        recoveries = scene.watch.sight.recoveries
        never = [each.seconds for each in recoveries].count(None) + [back.seconds for back in scene.returns].count(None)
        found = {name: count for name, count in vars(findings).items() if isinstance(count, int)}
        redis = "own" if scene.fleet.proxy is None else "proxied"
        facts = {
            "found": listed(found),
            "final": listed(findings.statuses),
            "faults": listed(scene.struck),
            "found no victim": listed(scene.missed),
            "submits": listed(load.outcomes),
            "items of the dead answered": times_line((each.what, each.seconds) for each in recoveries),
            "back after": times_line((each.fault, each.seconds) for each in scene.returns),
            "never back": never,
            f"webhooks every {STRETCH_S} s": " ".join(map(str, hooks.over_time())),
            "webhooks again, s": listed({what: round(some, 2) for what, some in sending_s.items()}),
            "killed at fault points": listed(scene.fleet.points_reached()),
            "ends": listed(scene.fleet.ends()),
        }
        head = f"seed {seed}, {engine} engine, {redis} Redis, {seconds:.0f} s, {scene.struck.total()} faults"
        told = [f"  {name}: {value}" for name, value in facts.items()]
        self.rounds.append([head, *told, *(f"  PROBLEM {text}" for text in findings.problems)])

    def lines(self) -> list[str]:
        """Return the report as text."""
        rounds = [line for lines in self.rounds for line in lines]
        return [*rounds, *(f"{what}: {seconds:.2f} s" for what, seconds in self.measured.items())]


def times_line(times: Iterable[tuple[str, float | None]]) -> str:
    """Return the times that half and nineteen in twenty stay below, by what was measured."""
    found: dict[str, list[float]] = {}
    for what, seconds in times:
        if seconds is not None:
            found.setdefault(what, []).append(seconds)
    parts = []
    for what, some in sorted(found.items()):
        ranked = sorted(some)
        p50, p95 = (ranked[min(len(ranked) - 1, int(len(ranked) * share))] for share in (0.5, 0.95))
        parts.append(f"{what} p50 {p50:.2f} s, p95 {p95:.2f} s ({len(some)})")
    return ", ".join(parts) or "nothing"


def listed(counts: Mapping[Any, Any]) -> str:
    """Return a mapping as ``name count`` pairs."""
    return ", ".join(f"{name} {count}" for name, count in counts.items()) or "none"
