"""``corelane usage``: what work took and cost, by day, month, key or model."""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer
from rich.table import Table

from corelane.cli.output import error_console, make_table, plain, print_line, print_table
from corelane.cli.service import JsonOption, ServiceClient
from corelane.domain.usage import HostUsage, Usage, UsageReport, UsageRow


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
    """Show what your work took and cost, this month's unless days are given."""
    found = client.usage(first, last, group_by=[each.value for each in by or [By.DAY]], owner=owner)
    if as_json:
        print_line(found)
        return
    print_table(usage_table(found))
    for line in closing_lines(found):
        error_console().print(line)


def usage_table(found: UsageReport) -> Table:
    """Return the rows of a report, and their sums below."""
    numbers = ("items", "windows", "tokens", "core time", "cost")
    table = make_table(*found.group_by, *numbers, whole=(*found.group_by, *numbers))
    for column in table.columns[len(found.group_by) :]:
        column.justify = "right"
    for row in found.data:
        table.add_row(*(plain(getattr(row, name) or "-") for name in found.group_by), *figures(row))
    if len(found.data) > 1:
        for row in found.total:
            names = ["sum", *[""] * len(found.group_by)][: len(found.group_by)]
            table.add_row(*names, *figures(row))
    return table


def figures(usage: Usage) -> list[str]:
    """Return the figures of a row for readers."""
    counts = (usage.items, usage.windows, usage.tokens)
    return [
        *("-" if count is None else f"{count:,}" for count in counts),
        show_core_time(usage.core_s),
        "-" if usage.cost is None else usage.cost.shown(),
    ]


def closing_lines(found: UsageReport) -> list[str]:
    """Return the lines below the table: the prices, the time of the cores, and the work that is not charged."""
    lines = list(dict.fromkeys(line for row in found.total if (line := price_line(row))))
    lines += [] if found.host is None else [host_line(found.host, found.total)]
    lost: list[UsageRow] = found.lost or []
    if lost_s := sum(row.core_s for row in lost):
        lines.append(f"Thrown away, and charged to nobody: {show_core_time(lost_s)}.")
    return lines


def price_line(row: UsageRow) -> str:
    """Return the price of a core hour, its type of host and its date; empty without a cost."""
    if (cost := row.cost) is None:
        return ""
    where = "several types of host" if cost.instance is None else cost.instance
    day = "" if cost.as_of is None else f", as of {cost.as_of}"
    return f"{cost.per_core_hour:.6g} {cost.currency} an hour of a core of {where}{day}."


def host_line(host: HostUsage, total: Sequence[UsageRow]) -> str:
    """Return a line with the total cost of the cores, and the share of their time that was charged."""
    charged_s = sum(row.core_s for row in total)
    share = f", {charged_s / host.up_s:.1%} of it charged" if host.up_s else ""
    costs = "".join(f": {cost.shown()}" for cost in host.cost)
    return f"The cores lived for {show_core_time(host.up_s)}{share}{costs}. Idle time is charged to nobody."


def show_core_time(seconds: float) -> str:
    """Return core seconds in a suitable unit."""
    return f"{seconds:,.2f} s" if seconds < 3600 else f"{seconds / 3600:,.2f} h"
