"""The history of the service: one point every ten seconds, kept for hours, coarser ones for a week; and marks.

A keeper takes the points, from the sums and gauges that every process can read. Both rings and the marks are streams in
Redis, so the history survives restarts, and any process can show it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from corelane.store.link.link import CommonLink

MarkKind = Literal["deploy", "alias", "load", "unload", "core", "calibration"]


@dataclass(frozen=True, slots=True)
class Point:
    """How the service did for a while, until ``at_ms``. Rates are per second; None where there is nothing to tell.

    ``jobs_s`` counts jobs that ended, ``failed_s`` items that failed. ``busy`` is the mean of all living cores.
    """

    at_ms: int
    items_s: float = 0.0
    tokens_s: float = 0.0
    jobs_s: float = 0.0
    failed_s: float = 0.0
    p50_s: float | None = None
    p95_s: float | None = None
    wait_p95_s: float | None = None
    backlog_s: float | None = None
    waiting_tokens: int = 0
    open_items: int = 0
    padding_ratio: float | None = None
    busy: float | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that was done to the service."""

    at_ms: int
    kind: MarkKind
    text: str


class History:
    """Reads the history, and notes marks."""

    def __init__(self, link: CommonLink) -> None:
        self._link = link

    async def points(self, since_ms: int, most: int = 400) -> list[Point]:
        """Return points from a time on, oldest first; where there are more than ``most``, each stands for several."""
        raise NotImplementedError

    async def marks(self, since_ms: int) -> Sequence[Mark]:
        """Return marks from a time on, oldest first."""
        raise NotImplementedError

    async def mark(self, kind: MarkKind, text: str) -> None:
        """Note that something was done to the service."""
        raise NotImplementedError
