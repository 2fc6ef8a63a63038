"""Items that failed, over all jobs."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import ValidationError

from api.deps import ReadCaller, StateDep
from corelane.domain.failed_items import FailedItem, FailureGroup
from corelane.domain.job_filter import JobFilter
from corelane.errors import Forbidden, InvalidInput
from corelane.plugins.console.auth import CONSOLE
from corelane.plugins.console.pages.filters import address, fill_form, read_filter
from corelane.plugins.console.pages.forms import refusal
from corelane.plugins.console.pages.page_route import PageRoute
from corelane.plugins.console.pages.render import render
from corelane.plugins.console.routes import count_failed_items, list_failed_items

router = APIRouter(prefix=f"{CONSOLE}/failed-items", route_class=PageRoute)

#: Items on a page.
PAGE_ITEMS = 25


@router.get("")
async def show_failed_items(
    request: Request,
    state: StateDep,
    caller: ReadCaller,
    after: Annotated[str, Query(max_length=60)] = "",
    code: Annotated[str, Query(max_length=64)] = "",
) -> Response:
    """Show a page of the failed items that the address asks for, newest job first."""
    given = {name: request.query_params.getlist(name) for name in request.query_params}
    wanted, status = JobFilter(), 200
    faults: list[str] = []
    items: list[FailedItem] = []
    groups: list[FailureGroup] = []
    following = None
    code = code.strip()
    try:
        wanted = read_filter(given)
        page = await list_failed_items(state, caller, wanted, code or None, PAGE_ITEMS, after or None)
        items, following = page.data, page.next
        groups = (await count_failed_items(state, caller, wanted)).data
    except (ValidationError, InvalidInput, Forbidden) as error:
        faults, status = refusal(error)
    kept = {"code": code} if code else {}
    return render(
        request,
        "failed_items.html",
        status,
        items=items,
        groups=[(each, address("failed-items", wanted, code=each.code)) for each in groups],
        every_code=address("failed-items", wanted),
        form=fill_form(given) | {"code": code},
        faults=faults,
        is_filtered=bool(code) or not wanted.is_empty,
        newest=address("failed-items", wanted, **kept) if after else None,
        older=address("failed-items", wanted, **kept, after=following) if following else None,
        jobs_address=address("jobs", wanted.model_copy(update={"has_failed_items": True})),
    )
