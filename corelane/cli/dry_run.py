"""``--dry-run`` of the commands that submit: what it would be, take and cost, and when it would end."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from corelane.cli.output import short_time
from corelane.cli.question_lines import OutputState, QuestionLine
from corelane.cli.usage import show_cost
from corelane.domain.job_forecast import BatchForecast, JobForecast, WorkForecast
from corelane.domain.jobs import Item
from corelane.errors import InvalidInput

if TYPE_CHECKING:
    from corelane.client import Client
    from corelane.client.endpoints import JobParts

DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Say what it would take and cost, and when it would end; ask nothing.")
]


def describe(found: WorkForecast) -> dict[str, object]:
    """Return the fields of a forecast for readers."""
    refusal = found.refusal
    between = f"{second(found.earliest_at)} and {second(found.latest_at)}" if found.earliest_at else None
    return {
        "model": found.model if isinstance(found, JobForecast) else None,
        "lines": f"{found.lines:,}, {found.bad_lines:,} bad" if isinstance(found, BatchForecast) else None,
        "items": f"{found.items:,}",
        "windows": f"{found.windows:,}",
        "tokens": f"{found.tokens:,}",
        "core s": None if found.core_s is None else f"{found.core_s:,.3f}",
        "cost": found.cost and show_cost(found.cost),
        "finish": found.finish_at and f"{second(found.finish_at)}{', too late' if found.late else ''}",
        "between": between,
        "refused": refusal and refusal.detail,
        "note": found.note,
    }


def second(time: str | None) -> str:
    """Return a time of a response to the second."""
    return "-" if time is None else short_time(time) + time[16:19]


def forecast_questions(client: "Client", lines: Iterable[QuestionLine], parts: "JobParts") -> tuple[JobForecast, int]:
    """Forecast the lines that can be asked; return how many cannot, too."""
    from corelane.client.endpoints import job_head

    bad = 0

    def items() -> Iterator[Item]:
        nonlocal bad
        for line in lines:
            if line.item is None:
                bad += 1
            else:
                yield line.item

    asked = items()
    if (first := next(asked, None)) is None:
        raise InvalidInput("no line is left that can be asked")
    found = client.forecast_lines(_chain(first, asked), job_head(parts))
    return found, bad


def unanswered(lines: Iterable[QuestionLine], kept: OutputState) -> Iterator[QuestionLine]:
    """Yield the lines that a run would still ask: an output file begins with the results of the first lines."""
    return islice(lines, kept.lines, None)


def _chain(first: Item, others: Iterator[Item]) -> Iterator[Item]:
    yield first
    yield from others
