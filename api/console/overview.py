"""The overview: whether the backlog drains, what was done of late, what the cores do, and what is wrong."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from starlette.responses import JSONResponse

from api.console.charts import DEFAULT_MINUTES, RANGES, read_columns
from api.console.pages import PageRoute
from api.console.render import HEADERS, fragment, render
from api.console.stream import Update
from api.deps import AS_READER, Parts, PartsDep
from api.middleware.console_door import CONSOLE
from corelane.domain.api_keys import Caller
from corelane.domain.overview import Overview

router = APIRouter(prefix=CONSOLE, route_class=PageRoute, dependencies=[AS_READER])

#: The parts of the page that follow what happens, each a template and an element of its name.
LIVE = ("forecast", "facts", "troubles", "cores", "lanes", "rates")


@router.get("/")
async def overview(request: Request, parts: PartsDep) -> Response:
    """Show the service at a glance."""
    seen = await parts.overviews.read()
    return render(request, "overview.html", **context_of(seen), ranges=RANGES, range=DEFAULT_MINUTES)


@router.get("/history")
async def history(parts: PartsDep, minutes: Annotated[int, Query(ge=1, le=7 * 24 * 60)] = DEFAULT_MINUTES) -> Response:
    """Return the points of the charts, column by column, and the marks."""
    return JSONResponse(await read_columns(parts, minutes), headers=HEADERS)


class OverviewFeed:
    """What the overview shows now. All who look within the same second are sent the same, which is made once."""

    def __init__(self) -> None:
        self._seen: Overview | None = None
        self._update = Update({})

    async def __call__(self, parts: Parts, _: Caller, __: Mapping[str, str]) -> Update:
        """Return the parts of the page, and how many items the cores have answered, for its pulse."""
        seen = await parts.overviews.read()
        if seen is not self._seen:
            context = context_of(seen)
            values = {"pulse": {"at": seen.at, "cores": {core.name: core.items for core in seen.cores}}}
            parts_of_page = {name: fragment(f"overview/{name}.html", **context) for name in LIVE}
            self._seen, self._update = seen, Update(parts_of_page, values)
        return self._update


def context_of(seen: Overview) -> dict[str, Any]:
    """Return what the page's templates show."""
    return {"seen": seen, "live": LIVE, "stream": "page=overview"}
