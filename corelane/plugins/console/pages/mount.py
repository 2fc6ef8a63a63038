"""The console's routes and files, added to the application."""

from collections import ChainMap
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from starlette.responses import RedirectResponse
from starlette.staticfiles import StaticFiles

from api.deps import AS_READER
from api.state import AppState
from corelane.errors import NotFound
from corelane.plugins.console.auth import CONSOLE, SessionStore
from corelane.plugins.console.pages import (
    ask,
    job,
    jobs,
    models,
    overview,
    session,
    steering,
    stream,
    webhooks,
)
from corelane.plugins.console.pages.nav import ADDED, Feed
from corelane.plugins.console.pages.page_route import PageRoute

FILES = Path(__file__).parent / "static"

#: Modules with the routes of pages.
PAGES = (overview, steering, models, ask, jobs, job, webhooks)

#: The feeds of the pages' streams, by the pages' names.
FEEDS: dict[str, Feed] = {
    "overview": overview.OverviewFeed(),
    "models": models.feed,
    "jobs": jobs.feed,
    "job": job.JobFeed(),
}


class Files(StaticFiles):
    """The files of the console. Browsers check each file for changes, so that an upgrade does not mix versions."""

    def file_response(self, *args: Any, **options: Any) -> Response:
        """Return a file, or the status that it has not changed."""
        response = super().file_response(*args, **options)
        response.headers["Cache-Control"] = "no-cache"
        return response


def add_console(app: FastAPI, state: AppState) -> None:
    """Serve the console."""
    sessions = SessionStore(state.link)
    app.mount(f"{CONSOLE}/static", Files(directory=FILES), name="console-files")
    added = [pages.load() for pages in ADDED]
    feeds = ChainMap({}, FEEDS, *(of_page for _, of_page in added))
    routers = [session.make_router(sessions, state.keys), stream.make_router(feeds, sessions)]
    routers += [page.router for page in PAGES] + [router for its_routers, _ in added for router in its_routers]
    rest = APIRouter(prefix=CONSOLE, route_class=PageRoute)

    @rest.get("")
    async def enter(request: Request) -> Response:
        """Redirect to the overview. Its address ends with a slash, and the other addresses are relative to it."""
        query = f"?{request.url.query}" if request.url.query else ""
        return RedirectResponse(f"console/{query}")

    @rest.get("/{path:path}", dependencies=[AS_READER])
    async def nothing(path: str) -> Response:
        """Say that the page does not exist."""
        raise NotFound(f"there is no page {path[:100]!r} here")

    # One by one: a router within a router is analysed at once, which takes 40 ms, and not when it is first asked.
    for router in (*routers, rest):
        app.include_router(router, include_in_schema=False)
