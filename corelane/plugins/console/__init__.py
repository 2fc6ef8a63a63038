"""The console plugin: pages for operators and callers, ``corelane top``, and the routes behind them."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from api.plugin import ApiPlugin
from corelane.cli.plugin import CommandPlugin
from corelane.store.plugin import StorePlugin
from workers.plugin import WorkerPlugin

if TYPE_CHECKING:
    import typer
    from fastapi import APIRouter, FastAPI
    from pydantic_settings import BaseSettings

    from api.middleware.sections import Section
    from api.state import AppState
    from corelane.domain.conditions import HealthIssue
    from corelane.settings import Settings
    from corelane.store.link.link import CommonLink
    from workers.loops.loop import Loop, LoopTools


class ConsolePlugin(ApiPlugin, WorkerPlugin, CommandPlugin, StorePlugin):
    """The overview, the history, and the pages that show them."""

    name = "console"
    keys = "corelane.plugins.console.keys"

    def settings(self) -> "type[BaseSettings]":
        """Return the setting that turns the pages on."""
        from corelane.plugins.console.settings import ConsoleFields

        return ConsoleFields

    def commands(self, cli: "typer.Typer") -> None:
        """Add ``corelane top``."""
        from corelane.plugins.console.top import top

        cli.command()(top)

    def api_parts(self, state: "AppState") -> Iterable[object]:
        """Return the reader of the overview."""
        from corelane.plugins.console.overviews import Overviews

        return (Overviews(state.link),)

    def lua(self) -> "Sequence[Path]":
        """Return the Lua functions of the overview."""
        return (Path(__file__).parent / "overview.lua",)

    def routers(self) -> "Iterable[APIRouter]":
        """Return the routes behind the pages."""
        from corelane.plugins.console.routes import router

        return (router,)

    def loops(self, queue: str, tools: "LoopTools") -> "Iterable[Loop]":
        """Return the keeper's loop that takes the history's points."""
        from corelane.domain.dispatch import KEEPER_QUEUE
        from corelane.plugins.console.history import sampling

        return (sampling(tools),) if queue == KEEPER_QUEUE else ()

    async def health_issues(self, link: "CommonLink") -> "Sequence[HealthIssue]":
        """Return an issue for each version whose items fail, and one if no points are taken."""
        from corelane.plugins.console.history import health_issues

        return await health_issues(link)

    def sections(self, state: "AppState") -> "Iterable[Section]":
        """Return the pages' section."""
        from corelane.plugins.console.section import ConsoleSection

        return (ConsoleSection(state),) if self._is_on(state.settings) else ()

    def add_to_app(self, app: "FastAPI", state: "AppState") -> None:
        """Add the pages and their static files."""
        from corelane.plugins.console.pages.mount import add_console

        if self._is_on(state.settings):
            add_console(app, state)

    def body_limits(self, settings: "Settings") -> Mapping[str, tuple[int, str]]:
        """Return the most bytes of the form with a text; reading a form of that size takes 25 ms."""
        return {"/console/ask": (min(settings.max_body_bytes, 64 * 1024), "")}

    def addresses(self, settings: "Settings") -> Mapping[str, str]:
        """Return the address of the pages."""
        return {"console": "/console"} if self._is_on(settings) else {}

    def _is_on(self, settings: "Settings") -> bool:
        from corelane.plugins.console.settings import ConsoleFields

        return settings.of(ConsoleFields).console


plugin = ConsolePlugin()
