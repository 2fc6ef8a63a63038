"""The audit: who steered the service, and what was done."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from api.deps import AdminCaller, StateDep
from corelane.plugins.console.auth import CONSOLE
from corelane.plugins.console.pages.page_route import PageRoute
from corelane.plugins.console.pages.render import render
from corelane.plugins.console.routes.audit import list_audit

router = APIRouter(prefix=f"{CONSOLE}/audit", route_class=PageRoute)

#: Lines on a page.
PAGE_LINES = 50


@router.get("")
async def show_audit(
    request: Request, state: StateDep, caller: AdminCaller, after: Annotated[str, Query(max_length=40)] = ""
) -> Response:
    """Show a page of what was done, newest first."""
    page = await list_audit(state, caller, PAGE_LINES, after or None)
    return render(
        request,
        "audit.html",
        entries=page.data,
        newest="audit" if after else None,
        older=f"audit?after={page.next}" if page.next else None,
    )
