"""Dry runs: what a job would be, take and cost, and when it would end, without making it.

A plugin does them (``Plugin.dry_runs``). This module is its interface for routes, and for other plugins that make jobs.
"""

from collections.abc import Iterable
from typing import Protocol

from corelane.domain.forecast import Size
from corelane.domain.job_forecast import JobForecast
from corelane.domain.jobs import Item, JobHead
from corelane.store.jobs.submission import Admission, Submission
from corelane.store.rates import VersionCosts
from corelane.submitting.items import BadItem
from corelane.submitting.ndjson import NdjsonBody

#: Most errors of items or lines that a forecast lists.
MAX_ERRORS = 20


class Sizing(Protocol):
    """A job that is measured item by item, in constant memory."""

    costs: VersionCosts
    items: int
    tokens: int

    def add(self, item: Item | BadItem) -> None:
        """Measure the next item. One that would fail alone is only counted, and listed if there is room."""

    def close(self) -> "Sizing":
        """End the last slice; return this object."""

    def describe(self, size: Size) -> JobForecast:
        """Return the forecast of the job; ``size`` is the work that would be done until it ends."""


class DryRuns(Protocol):
    """Forecasts jobs that are asked for with ``dry_run``."""

    async def job(self, submission: Submission, bad: Iterable[BadItem] = ()) -> JobForecast:
        """Forecast a job with these items; ``bad`` are those that would fail alone.

        Raise the errors of ``Submitter.submit``, except Overloaded and DeadlineInfeasible.
        """

    async def lines(self, body: NdjsonBody, owner: str) -> JobForecast:
        """Forecast a job that is sent as lines, whose head was read. Nothing of it is stored, in memory or on disk."""

    async def begin(self, head: JobHead, owner: str, admission: Admission) -> Sizing:
        """Begin to measure an admitted job."""
