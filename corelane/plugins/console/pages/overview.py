"""The overview: whether the backlog drains, the work done recently, the state of the cores, and what is wrong."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from starlette.responses import JSONResponse

from api.deps import AS_READER, ReadCaller, StateDep
from api.state import AppState
from corelane.domain.api_keys import Caller, Scope
from corelane.domain.overview import Overview
from corelane.plugins.console.auth import CONSOLE
from corelane.plugins.console.overviews import Overviews
from corelane.plugins.console.pages.page_route import PageRoute
from corelane.plugins.console.pages.render import HEADERS, fragment, render, rights
from corelane.plugins.console.pages.stream import Update
from corelane.plugins.console.routes import read_history

router = APIRouter(prefix=CONSOLE, route_class=PageRoute, dependencies=[AS_READER])

#: The time ranges that a reader may choose, in minutes, with their names.
RANGES = ((15, "15 min"), (60, "1 h"), (360, "6 h"))
DEFAULT_MINUTES = 60

#: The values of a point that charts draw.
COLUMNS = ("items_s", "failed_s", "p50_s", "p95_s", "wait_p95_s", "backlog_s", "padding_ratio", "busy")

#: The parts of the page that are updated, each a template and an element of that name.
LIVE = ("forecast", "facts", "issues", "cores", "owners", "lanes", "rates")


@router.get("/")
async def overview(request: Request, state: StateDep, caller: ReadCaller, did: str = "") -> Response:
    """Show the service at a glance."""
    shown = facts_of(await state.of(Overviews).read(), state, caller)
    return render(request, "overview.html", **shown, ranges=RANGES, range=DEFAULT_MINUTES, did=did)


@router.get("/history")
async def history(state: StateDep, minutes: Annotated[int, Query(ge=1, le=7 * 24 * 60)] = DEFAULT_MINUTES) -> Response:
    """Return the points of the charts, a list for each value, and the marks; times in seconds."""
    now_ms, points, marks = await read_history(state, minutes)
    columns = {
        "now": now_ms / 1000,
        "at": [point.at_ms / 1000 for point in points],
        "marks": [{"at": mark.at_ms / 1000, "kind": mark.kind, "text": mark.text} for mark in marks],
        **{name: [getattr(point, name) for point in points] for name in COLUMNS},
    }
    return JSONResponse(columns, headers=HEADERS)


class OverviewFeed:
    """The current content of the overview. It is made once a second for all admins, and once for all other callers."""

    def __init__(self) -> None:
        self._seen: Overview | None = None
        self._updates: dict[bool, Update] = {}

    async def __call__(self, state: AppState, caller: Caller, _: Mapping[str, str]) -> Update:
        """Return the parts of the page, and the number of items that the cores have answered, for the pulse."""
        seen, is_admin = await state.of(Overviews).read(), Scope.ADMIN in caller.scopes
        if seen is not self._seen:
            self._seen, self._updates = seen, {}
        if is_admin not in self._updates:
            known = facts_of(seen, state, caller)
            values = {"pulse": {"at": seen.at, "cores": {core.name: core.items for core in seen.cores}}}
            parts_of_page = {name: fragment(f"overview/{name}.html", **known) for name in LIVE}
            self._updates[is_admin] = Update(parts_of_page, values)
        return self._updates[is_admin]


def facts_of(seen: Overview, state: AppState, caller: Caller) -> dict[str, Any]:
    """Return the data for the page's templates that this caller may see."""
    return {
        "seen": seen if state.jobs.sees_all(caller) else seen.without_owners(),
        "paused": {pause.subject: pause for pause in seen.paused},
        "can": rights(caller.scopes),
        "live": LIVE,
        "stream": "page=overview",
    }
