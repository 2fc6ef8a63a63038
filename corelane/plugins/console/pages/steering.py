"""Actions of admins besides those on models: read the audit, pause and resume."""

from typing import Annotated, Literal

from fastapi import APIRouter, Form, Query, Request, Response

from api.deps import AdminCaller, StateDep
from api.routes import pauses
from corelane.domain.pauses import PauseKind
from corelane.plugins.console.auth import CONSOLE
from corelane.plugins.console.pages.forms import go_to
from corelane.plugins.console.pages.page_route import PageRoute
from corelane.plugins.console.pages.render import render
from corelane.plugins.console.routes import list_audit

router = APIRouter(prefix=CONSOLE, route_class=PageRoute)

#: Lines on a page.
PAGE_LINES = 50

Kind = Annotated[PauseKind, Form()]
Name = Annotated[str, Form(min_length=1, max_length=210)]

#: The page that the form is on.
Back = Annotated[Literal[".", "models"], Form()]


@router.get("/audit")
async def show_audit(
    request: Request, state: StateDep, caller: AdminCaller, after: Annotated[str, Query(max_length=40)] = ""
) -> Response:
    """Show a page of the audit, newest first."""
    page = await list_audit(state, caller, PAGE_LINES, after or None)
    return render(
        request,
        "audit.html",
        entries=page.data,
        newest="audit" if after else None,
        older=f"audit?after={page.next}" if page.next else None,
    )


@router.post("/pauses/pause")
async def pause(request: Request, state: StateDep, caller: AdminCaller, kind: Kind, name: Name, back: Back) -> Response:
    """Stop new work on a core, for a version or of an owner."""
    await pauses.pause(kind, name, state, caller)
    return go_to(request, back, did="paused")


@router.post("/pauses/resume")
async def resume(
    request: Request, state: StateDep, caller: AdminCaller, kind: Kind, name: Name, back: Back
) -> Response:
    """End a pause."""
    await pauses.resume(kind, name, state, caller)
    return go_to(request, back, did="resumed")
