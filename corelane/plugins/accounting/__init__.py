"""The accounting plugin: tokens and core seconds that work took, and traces of it."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from api.plugin import ApiPlugin
from corelane.cli.plugin import CommandPlugin
from corelane.store.plugin import StorePlugin
from corelane.tracing import TracingPlugin
from workers.plugin import WorkerPlugin

if TYPE_CHECKING:
    import typer
    from fastapi import APIRouter
    from starlette.middleware import Middleware

    from api.state import AppState
    from corelane.tracing import Tracer


class AccountingPlugin(ApiPlugin, WorkerPlugin, CommandPlugin, StorePlugin, TracingPlugin):
    """``/v1/usage`` and ``corelane usage``, the usage of jobs, and their traces."""

    name = "accounting"
    keys = "corelane.plugins.accounting.keys"

    def commands(self, cli: "typer.Typer") -> None:
        """Add ``corelane usage``."""
        from corelane.plugins.accounting.usage_command import show_usage

        cli.command("usage")(show_usage)

    def routers(self) -> "Iterable[APIRouter]":
        """Return the route of usage."""
        from corelane.plugins.accounting.routes import router

        return (router,)

    def lua(self) -> Sequence[Path]:
        """Return the Lua file that records the usage of jobs and days."""
        return (Path(__file__).parent / "accounting.lua",)

    def asgi_layers(self, state: "AppState") -> "Iterable[Middleware]":
        """Return the layer that traces requests, if traces are on."""
        if state.tracer is None:
            return ()
        from starlette.middleware import Middleware

        from corelane.plugins.accounting.traces.layer import TraceLayer

        return (Middleware(TraceLayer, tracer=state.tracer),)

    def tracer(self, role: str, instance: str) -> "Tracer | None":
        """Return the OpenTelemetry tracer, if the environment asks for one."""
        from corelane.plugins.accounting.traces import open_tracer

        return open_tracer(role, instance)

    def observers(self, core: Any) -> Iterable[Any]:
        """Return the observer that measures what jobs take and, if traces are on, the observer that traces jobs."""
        from corelane.plugins.accounting.usage_meter import UsageMeter

        yield UsageMeter()
        # The exporter's thread does not survive a fork, so each child of a worker opens its own.
        if (tracer := self.tracer("core", core.core)) is not None:
            from corelane.plugins.accounting.traces.core import CoreTraces

            yield CoreTraces(tracer, core)


plugin = AccountingPlugin()
