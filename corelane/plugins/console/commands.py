"""``corelane jobs failed-items``."""

from typing import Annotated

import typer

from corelane.cli.admin import FilterOptions
from corelane.cli.output import print_list
from corelane.cli.service import JsonOption, LimitOption, ServiceClient
from corelane.domain.failed_items import FailedItem, FailureGroup


def list_failed_items(
    client: ServiceClient,
    filters: FilterOptions,
    code: Annotated[str | None, typer.Option(help="Only failures with this code of error.")] = None,
    by_code: Annotated[bool, typer.Option("--by-code", help="Count them by code of error instead.")] = False,
    limit: LimitOption = 20,
    as_json: JsonOption = False,
) -> None:
    """List the items that failed, newest job first."""
    if by_code:
        groups = client.failure_groups(**filters)
        print_list(groups, ("error", "items", "jobs", "retry"), group_row, whole=("error",), as_json=as_json)
        return

    def row(item: FailedItem) -> tuple[str, ...]:
        error = ("", "") if item.error is None else (item.error.code, item.error.detail)
        return item.job, f"{item.index:,}", item.id or "", *error

    columns = ("job", "item", "id", "error", "detail")
    found = client.iter_failed_items(code=code, limit=limit, **filters)
    print_list(found, columns, row, whole=("job", "item", "error"), as_json=as_json)


def group_row(group: FailureGroup) -> tuple[str, ...]:
    """Return a table row about the items that failed with one code."""
    return group.code, f"{group.items:,}", f"{group.jobs:,}", "may help" if group.retryable else "would fail again"
