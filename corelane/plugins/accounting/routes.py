"""Usage: what the work of API keys took, by day, month, key and model."""

import csv
import io
from collections.abc import Sequence
from datetime import date
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response

from api.deps import ReadCaller, StateDep
from api.errors import documented
from corelane.domain.job_filter import ALL_OWNERS
from corelane.domain.overview import DAY_S
from corelane.domain.usage import Group, UsageReport, UsageRow
from corelane.errors import InvalidInput
from corelane.plugins.accounting.ledger import day_number, day_text, read_rows, report

router = APIRouter(prefix="/v1", tags=["fleet"], responses=documented(403, 422, 503))

#: Most days in one report: three years.
MOST_DAYS = 3 * 366

#: The columns of a row as CSV.
COLUMNS = ("day", "month", "key", "model", "items", "tokens", "core_s")

CSV = "text/csv; charset=utf-8"


@router.get(
    "/usage",
    response_model=UsageReport,
    responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}}},
)
async def get_usage(
    state: StateDep,
    caller: ReadCaller,
    first: Annotated[
        date | None, Query(alias="from", description="The first day, by UTC; that of this month if not given.")
    ] = None,
    last: Annotated[date | None, Query(alias="to", description="The last day; today if not given.")] = None,
    group_by: Annotated[list[Group], Query(max_length=4, description="One row for each of these; all in one.")] = [],  # noqa: B006
    owner: Annotated[
        str | None,
        Query(
            min_length=1,
            max_length=64,
            description="Another owner's usage, or `*` for all: for keys of scope `admin`, where keys are checked.",
        ),
    ] = None,
    form: Annotated[
        Literal["json", "csv"], Query(alias="format", description="`csv` gives the rows alone, as a table.")
    ] = "json",
) -> Response:
    """Show what your work took, from one day to another; for an admin that of all with `owner=*`."""
    today = int(await state.link.now_ms()) // (1000 * DAY_S)
    until = today if last is None else day_number(last)
    since = day_number(date.fromisoformat(day_text(until)).replace(day=1)) if first is None else day_number(first)
    if not 0 <= until - since < MOST_DAYS:
        raise InvalidInput(f"`from` is not after `to`, and there are at most {MOST_DAYS} days between them")
    meant = state.jobs.owner_meant(caller, owner)
    asked = None if meant == ALL_OWNERS else meant
    rows = await read_rows(state.link, since, until, asked)
    found = report(rows, since, until, list(dict.fromkeys(group_by)))
    if form == "csv":
        return Response(as_csv(found.data), media_type=CSV)
    return Response(found.model_dump_json(), media_type="application/json")


def as_csv(rows: Sequence[UsageRow]) -> str:
    """Return rows as CSV, below a row of the column names."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(COLUMNS)
    writer.writerows([getattr(row, name) for name in COLUMNS] for row in rows)
    return out.getvalue()
