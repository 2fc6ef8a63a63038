"""Models: the versions, where they are loaded, and what aliases mean."""

from fastapi import APIRouter, Request, Response

from api.console.pages import PageRoute
from api.console.render import render
from api.deps import AS_READER, PartsDep
from api.routes.fleet import list_models

router = APIRouter(route_class=PageRoute)


@router.get("/models", dependencies=[AS_READER])
async def models(request: Request, parts: PartsDep) -> Response:
    """Show the versions."""
    return render(request, "models.html", models=(await list_models(parts)).data)
