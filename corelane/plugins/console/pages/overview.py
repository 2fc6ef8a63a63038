"""The overview: what waits and for how long, what is wrong, the cores, the models, and charts of the last hours."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request, Response

from api.deps import AS_READER, ReadCaller, StateDep
from api.state import AppState
from corelane.domain.api_keys import Caller, Scope
from corelane.domain.conditions import HealthIssue
from corelane.domain.overview import Overview
from corelane.plugins.console.auth import CONSOLE
from corelane.plugins.console.history import read_history
from corelane.plugins.console.overviews import Overviews
from corelane.plugins.console.pages.nav import Update
from corelane.plugins.console.pages.page_route import PageRoute
from corelane.plugins.console.pages.render import HEADERS, fragment, render, rights
from corelane.plugins.console.routes import Minutes

router = APIRouter(prefix=CONSOLE, route_class=PageRoute, dependencies=[AS_READER])

#: The time ranges that a reader may choose, in minutes, with their names.
RANGES = ((15, "15 min"), (60, "1 h"), (360, "6 h"))

#: The parts of the page that are updated, each a template and an element of that name.
LIVE = ("now", "issues", "models", "owners", "cores")


@router.get("/")
async def overview(request: Request, state: StateDep, caller: ReadCaller, did: str = "") -> Response:
    """Show the service at a glance."""
    shown = facts_of(await state.of(Overviews).read(), state, caller)
    return render(request, "overview.html", **shown, stream="page=overview", ranges=RANGES, did=did)


@router.get("/history")
async def history(state: StateDep, minutes: Minutes = 60) -> Response:
    """Return what the charts draw."""
    found = await read_history(state.link, minutes)
    return Response(found.model_dump_json(), headers=HEADERS, media_type="application/json")


class OverviewFeed:
    """The current content of the overview. It is made once a second for all admins, and once for all other callers."""

    def __init__(self) -> None:
        self._seen: Overview | None = None
        self._updates: dict[bool, Update] = {}

    async def __call__(self, state: AppState, caller: Caller, _: Mapping[str, str]) -> Update:
        """Return the parts of the page."""
        seen, is_admin = await state.of(Overviews).read(), Scope.ADMIN in caller.scopes
        if seen is not self._seen:
            self._seen, self._updates = seen, {}
        if is_admin not in self._updates:
            known = facts_of(seen, state, caller)
            self._updates[is_admin] = Update({name: fragment(f"overview/{name}.html", **known) for name in LIVE})
        return self._updates[is_admin]


def facts_of(seen: Overview, state: AppState, caller: Caller) -> dict[str, Any]:
    """Return the data for the page's templates that this caller may see; what is wrong with many parts stands once."""
    seen = seen if state.jobs.sees_all(caller) else seen.without_owners()
    issues: dict[str, list[HealthIssue]] = {}
    for issue in seen.troubles:
        issues.setdefault(issue.text, []).append(issue)
    return {
        "seen": seen,
        "issues": issues,
        "paused": {pause.subject: pause for pause in seen.paused},
        "can": rights(caller.scopes),
        "live": LIVE,
    }
