"""The plugin interface of the API: what a plugin can add to the API."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from corelane.plugin import Plugin

if TYPE_CHECKING:
    from fastapi import APIRouter, FastAPI
    from starlette.middleware import Middleware

    from api.middleware.sections import Section
    from api.state import AppState
    from corelane.settings import Settings


class ApiPlugin(Plugin):
    """A plugin that adds to the API. It overrides the methods for what it adds."""

    def api_parts(self, state: "AppState") -> Iterable[object]:
        """Return the objects that the plugin's routes share in one API process; ``state.of(TYPE)`` finds each by type.

        An ``api.state.Running`` among them is started and closed with the process.
        """
        return ()

    def routers(self) -> "Iterable[APIRouter]":
        """Return the plugin's routes for the documented API."""
        return ()

    def add_to_app(self, app: "FastAPI", state: "AppState") -> None:
        """Add everything other than documented routes: pages, files, layers."""

    def console(self) -> object:
        """Return the plugin's console pages, in the form of the plugin that shows the console; None if it has none."""
        return None

    def body_limits(self, settings: "Settings") -> Mapping[str, tuple[int, str]]:
        """Return, by path, the most bytes of a body and their setting, if any, where core's limit differs."""
        return {}

    def sections(self, state: "AppState") -> "Iterable[Section]":
        """Return the plugin's sections: groups of pages that identify callers in their own way."""
        return ()

    def asgi_layers(self, state: "AppState") -> "Iterable[Middleware]":
        """Return the plugin's layers around the API's own layers; the first one is the innermost."""
        return ()
