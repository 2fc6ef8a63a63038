"""The console plugin: pages for operators and callers at ``/console``, and ``corelane top``."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from corelane.plugin import Plugin

if TYPE_CHECKING:
    import typer
    from fastapi import FastAPI
    from pydantic_settings import BaseSettings

    from api.middleware.sections import Section
    from api.state import AppState
    from corelane.settings import Settings


class ConsolePlugin(Plugin):
    """The pages, who may see them, and the terminal's overview."""

    name = "console"

    def settings(self) -> "type[BaseSettings]":
        """Return whether there are pages."""
        from corelane.plugins.console.settings import ConsoleFields

        return ConsoleFields

    def commands(self, cli: "typer.Typer") -> None:
        """Add ``corelane top``."""
        from corelane.plugins.console.top import top

        cli.command()(top)

    def sections(self, state: "AppState") -> "Iterable[Section]":
        """Return the pages' section."""
        from corelane.plugins.console.auth import ConsoleSection

        return (ConsoleSection(state),) if self._is_on(state.settings) else ()

    def add_to_app(self, app: "FastAPI", state: "AppState") -> None:
        """Add the pages and their files."""
        from corelane.plugins.console.pages.mount import add_console

        if self._is_on(state.settings):
            add_console(app, state)

    def addresses(self, settings: "Settings") -> Mapping[str, str]:
        """Return where the pages are."""
        return {"console": "/console"} if self._is_on(settings) else {}

    def _is_on(self, settings: "Settings") -> bool:
        from corelane.plugins.console.settings import ConsoleFields

        return settings.of(ConsoleFields).console


plugin = ConsolePlugin()
