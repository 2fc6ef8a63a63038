"""The overview: whether the backlog drains, what the cores do, and what is wrong."""

from collections.abc import Mapping

from fastapi import APIRouter, Request, Response

from api.console.pages import PageRoute
from api.console.render import fragment, render
from api.console.stream import Update
from api.deps import AS_READER, Parts, PartsDep
from api.routes.fleet import list_cores
from corelane.domain.api_keys import Caller

router = APIRouter(route_class=PageRoute)


@router.get("/", dependencies=[AS_READER])
async def overview(request: Request, parts: PartsDep) -> Response:
    """Show the service at a glance."""
    cores = (await list_cores(parts)).data
    return render(request, "overview.html", cores=cores, stream="page=overview")


async def feed(parts: Parts, _: Caller, __: Mapping[str, str]) -> Update:
    """Return what the overview shows now."""
    cores = (await list_cores(parts)).data
    return Update({"cores": fragment("cores.html", cores=cores)})
