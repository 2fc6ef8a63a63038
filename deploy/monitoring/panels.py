"""Panels, rows and boards as plain data, and the queries that many panels share."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

#: Thresholds of panels on which more is worse: green below the first, yellow below the second, red above.
Limits = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel: its queries, each with its legend, and how they are drawn.

    ``kind`` is one of Grafana's: timeseries, stat, heatmap, state-timeline, table.
    """

    title: str
    queries: Sequence[tuple[str, str]]
    unit: str = "short"
    kind: str = "timeseries"
    help: str = ""
    width: int = 8
    height: int = 8
    stacked: bool = False
    limits: Limits | None = None
    good_is_high: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A titled row of panels."""

    title: str
    panels: Sequence[Panel]


@dataclass(frozen=True, slots=True)
class Board:
    """A board, and the other board that it links to."""

    uid: str
    title: str
    links_to: tuple[str, str]
    rows: Sequence[Row]

    def panels(self) -> Sequence[Panel]:
        """Return its panels, from left to right, from top to bottom."""
        return [panel for row in self.rows for panel in row.panels]


def quantiles(metric: str, by: str = "") -> list[tuple[str, str]]:
    """Return the queries for the median and the 95th percentile of a histogram, by one label if given."""
    labels = f"le, {by}" if by else "le"
    legend = f" {{{{{by}}}}}" if by else ""
    rate = f"sum by ({labels}) (rate({metric}_bucket[$__rate_interval]))"
    return [(f"histogram_quantile({q}, {rate})", f"p{int(q * 100)}{legend}") for q in (0.5, 0.95)]


def rate(metric: str, by: str = "", where: str = "") -> tuple[str, str]:
    """Return the query for how fast a counter grows, a second."""
    summed = f"sum by ({by})" if by else "sum"
    return f"{summed} (rate({metric}{where}[$__rate_interval]))", " ".join(f"{{{{{each}}}}}" for each in by.split(", "))


def heat(metric: str) -> list[tuple[str, str]]:
    """Return the query for a heat map of a histogram."""
    return [(f"sum by (le) (increase({metric}_bucket[$__rate_interval]))", "{{le}}")]


def stat(title: str, query: str, unit: str = "short", limits: Limits | None = None, **more: Any) -> Panel:
    """Return a small panel with one figure."""
    return Panel(title, [(query, "")], unit, "stat", width=3, height=4, limits=limits, **more)
