"""Actions of admins besides those on models: pause and resume."""

from typing import Annotated, Literal

from fastapi import APIRouter, Form, Request, Response

from api.deps import AdminCaller, StateDep
from api.routes import pauses
from corelane.domain.pauses import PauseKind
from corelane.plugins.console.auth import CONSOLE
from corelane.plugins.console.pages.forms import go_to
from corelane.plugins.console.pages.page_route import PageRoute

router = APIRouter(prefix=CONSOLE, route_class=PageRoute)

Kind = Annotated[PauseKind, Form()]
Name = Annotated[str, Form(min_length=1, max_length=210)]

#: The page that the form is on.
Back = Annotated[Literal[".", "models"], Form()]


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
