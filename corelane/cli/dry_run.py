"""``--dry-run`` of the commands that submit: the size, time and cost of the work, and when it would end."""

from typing import Annotated

import typer

from corelane.cli.output import short_time
from corelane.domain.job_forecast import BatchForecast, JobForecast, WorkForecast

DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Say what it would take and cost, and when it would end; ask nothing.")
]


def describe(found: WorkForecast) -> dict[str, object]:
    """Return the fields of a forecast for readers."""
    return {
        "model": found.model if isinstance(found, JobForecast) else None,
        "lines": f"{found.lines:,}, {found.bad_lines:,} bad" if isinstance(found, BatchForecast) else None,
        "items": f"{found.items:,}",
        "windows": f"{found.windows:,}",
        "tokens": f"{found.tokens:,}",
        "core s": None if found.core_s is None else f"{found.core_s:,.3f}",
        "cost": found.cost and found.cost.shown(),
        "finish": found.finish_at and f"{_second(found.finish_at)}{', too late' if found.late else ''}",
        "between": found.earliest_at and f"{_second(found.earliest_at)} and {_second(found.latest_at)}",
        "refused": found.refusal and found.refusal.detail,
        "note": found.note,
    }


def _second(time: str | None) -> str:
    """Return a time of a response to the second."""
    return "-" if time is None else short_time(time) + time[16:19]
