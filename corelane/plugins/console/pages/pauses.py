"""Pause a core, a version or an owner, and have it go on: buttons of the overview and of the models' page."""

from typing import Annotated, Literal

from fastapi import APIRouter, Form, Request, Response

from api.deps import AdminCaller, StateDep
from api.routes import pauses
from corelane.domain.pauses import PauseKind
from corelane.plugins.console.auth import CONSOLE
from corelane.plugins.console.pages.forms import go_to
from corelane.plugins.console.pages.page_route import PageRoute

router = APIRouter(prefix=f"{CONSOLE}/pauses", route_class=PageRoute)

Kind = Annotated[PauseKind, Form()]
Name = Annotated[str, Form(min_length=1, max_length=210)]

#: The page that a form stands on.
Back = Annotated[Literal[".", "models"], Form()]


@router.post("/pause")
async def pause(request: Request, state: StateDep, caller: AdminCaller, kind: Kind, name: Name, back: Back) -> Response:
    """Take no new work on, for or of it."""
    await pauses.pause(kind, name, state, caller)
    return go_to(request, back, did="paused")


@router.post("/resume")
async def resume(
    request: Request, state: StateDep, caller: AdminCaller, kind: Kind, name: Name, back: Back
) -> Response:
    """Have it go on."""
    await pauses.resume(kind, name, state, caller)
    return go_to(request, back, did="resumed")
