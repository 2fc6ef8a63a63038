"""Lay out where a job's time went: one bar for each stage, one after the other. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

#: The stages in the order in which a job passes through them: field of its timing, name, and what happens.
STAGES = (
    ("submit_s", "submit", "received, checked and written to the store"),
    ("wait_s", "wait", "in its lane, until a core had room for it"),
    ("tokenize_s", "tokenize", "text made into the model's windows"),
    ("compute_s", "compute", "the model's own passes"),
    ("merge_s", "merge", "scores of the windows made into results"),
    ("commit_s", "commit", "results written to the store"),
    ("other_s", "other", "what no stage explains"),
)

#: The width of the chart, in its own units.
FULL = 1000.0

#: Least width of a bar whose stage took any time.
LEAST = 2.0


@dataclass(frozen=True, slots=True)
class Bar:
    """One stage: its seconds, its share of the whole, and its place in a chart that is ``FULL`` units wide."""

    name: str
    about: str
    seconds: float
    share: float
    x: float
    width: float


def lay_out(timing: Mapping[str, float | None], wall_s: float) -> list[Bar]:
    """Return the bars of the stages that were measured."""
    found = [(name, about, max(0.0, timing.get(key) or 0.0)) for key, name, about in STAGES if key in timing]
    whole = max(wall_s, sum(seconds for _, _, seconds in found)) or 1.0
    bars: list[Bar] = []
    at = 0.0
    for name, about, seconds in found:
        share = seconds / whole
        x = min(at * FULL, FULL - LEAST)
        width = max(share * FULL, LEAST if seconds else 0.0)
        bars.append(Bar(name, about, seconds, share, round(x, 1), round(min(width, FULL - x), 1)))
        at += share
    return bars
