"""The door of the API: what a plugin can add to it."""

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
        """Return the objects that its routes share in one API process; ``state.of(TYPE)`` finds each by its type.

        An ``api.state.Running`` among them is started and closed with the process.
        """
        return ()

    def routers(self) -> "Iterable[APIRouter]":
        """Return its routes for the documented API."""
        return ()

    def add_to_app(self, app: "FastAPI", state: "AppState") -> None:
        """Add everything other than documented routes: pages, files, layers."""

    def console(self) -> object:
        """Return its console pages, in the form of the plugin that shows the console; None without any."""
        return None

    def body_limits(self, settings: "Settings") -> Mapping[str, tuple[int, str]]:
        """Return the most bytes of a request's body and its setting, if any, by path, where it differs from core's."""
        return {}

    def sections(self, state: "AppState") -> "Iterable[Section]":
        """Return its sections of pages, which identify callers in their own way."""
        return ()

    def asgi_layers(self, state: "AppState") -> "Iterable[Middleware]":
        """Return its layers around the API's own; the first one is the innermost."""
        return ()
