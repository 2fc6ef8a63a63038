"""What was measured of each service, and what follows from it: medians of rounds, and the table. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.callers import CALLERS
from benchmarks.harness import Figures, medians

#: The columns of a table, as the figures name them, and their heads.
COLUMNS = {
    **{f"callers_{callers}": f"{callers} caller{'s' * (callers > 1)}" for callers in CALLERS},
    "bulk": "in bulk",
}

#: The roles of Corelane's processes that an item costs CPU time.
ROLES = {"api": "API", "redis": "Redis", "worker": "workers"}


@dataclass(frozen=True, slots=True)
class Row:
    """A service: its title, the figures of each round, and what it answered in bulk, by item."""

    title: str
    rounds: list[Figures] = field(default_factory=list)
    answers: dict[Any, Any] = field(default_factory=dict)


def rotated(names: Sequence[str], round_: int) -> list[str]:
    """Return a round's order: two places further than the last round's, so that each name comes first in some round."""
    by = 2 * round_ % len(names)
    return [*names[by:], *names[:by]]


def table(rows: Sequence[Row], last: str, lasts: Sequence[str]) -> str:
    """Return the comparison as Markdown: medians of rounds, the best of each column in bold, and a last column."""
    middle = [medians(row.rounds) for row in rows]
    best = {name: max((each.get(f"{name}_per_s", 0.0) for each in middle), default=0.0) for name in COLUMNS}
    lines = [f"| | {' | '.join(COLUMNS.values())} | {last} |", "|---|" + "---:|" * (len(COLUMNS) + 1)]
    for row, figures, shown in zip(rows, middle, lasts, strict=True):
        cells = [cell(figures, name, best[name]) for name in COLUMNS]
        failed = sum(value for each in row.rounds for name, value in each.items() if name.endswith("_failed"))
        lines.append(f"| {row.title} | {' | '.join(cells)} | {shown}{f', {failed:.0f} failed' if failed else ''} |")
    return "\n".join(lines)


def cell(figures: Figures, name: str, best: float) -> str:
    """Return items a second, in bold if they are the best, and the 95th percentile of latency."""
    per_s, p95_ms = figures.get(f"{name}_per_s"), figures.get(f"{name}_p95_ms")
    if per_s is None:
        return ""
    text = f"{per_s:,.0f}" if per_s >= 100 else f"{per_s:.1f}"
    return (f"**{text}**" if per_s == best else text) + (f", {p95_ms:,.0f} ms" if p95_ms else "")


def cpu_line(title: str, figures: Mapping[str, float], item: str) -> str:
    """Return the sentence on the CPU time an item of one of our services, by role."""
    parts = []
    for name, head in COLUMNS.items():
        said = [
            f"{said} {figures[f'{name}_{role}_us']:,.0f}"
            for role, said in ROLES.items()
            if f"{name}_{role}_us" in figures
        ]
        parts += [f"{head} {', '.join(said)}"] if said else []
    return f"CPU of {title} in µs a {item}: {'; '.join(parts)}."
