"""``corelane usage``: what work took, by day, month, key or model."""

from enum import StrEnum
from typing import Annotated

import typer
from rich.table import Table

from corelane.cli.output import make_table, plain, print_line, print_table
from corelane.cli.service import JsonOption, ServiceClient
from corelane.domain.usage import Usage, UsageReport


class By(StrEnum):
    """The groups for usage: ``corelane.domain.usage.Group`` as values of an option."""

    DAY = "day"
    MONTH = "month"
    KEY = "key"
    MODEL = "model"


def show_usage(
    client: ServiceClient,
    first: Annotated[
        str | None, typer.Option("--from", help="The first day, as 2026-11-01; that of this month.")
    ] = None,
    last: Annotated[str | None, typer.Option("--to", help="The last day; today if not given.")] = None,
    by: Annotated[list[By] | None, typer.Option(help="A row for each; may be repeated.")] = None,
    owner: Annotated[str | None, typer.Option(help="Another owner's usage, or `*` for all (scope admin).")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show what your work took, this month's unless days are given."""
    found = client.usage(first, last, group_by=[each.value for each in by or [By.DAY]], owner=owner)
    if as_json:
        print_line(found)
        return
    print_table(usage_table(found))


def usage_table(found: UsageReport) -> Table:
    """Return the rows of a report, and their sum below."""
    numbers = ("items", "tokens", "core time")
    table = make_table(*found.group_by, *numbers, whole=(*found.group_by, *numbers))
    for column in table.columns[len(found.group_by) :]:
        column.justify = "right"
    for row in found.data:
        table.add_row(*(plain(getattr(row, name) or "-") for name in found.group_by), *figures(row))
    if len(found.data) > 1:
        table.add_row("sum", *[""] * (len(found.group_by) - 1), *figures(found.total))
    return table


def figures(usage: Usage) -> list[str]:
    """Return the figures of a row for readers."""
    core_time = f"{usage.core_s:,.2f} s" if usage.core_s < 3600 else f"{usage.core_s / 3600:,.2f} h"
    return [f"{usage.items:,}", f"{usage.tokens:,}", core_time]
