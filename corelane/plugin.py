"""What a plugin can add, and which plugins are installed.

A plugin is an object of a subclass of ``Plugin``, named by an entry point of the group ``corelane.plugins``. Those that
come with Corelane are in ``corelane/plugins``, or with the one task they serve; any package may declare another. Core
asks each for what it adds and knows none by name: without its entry point, no trace of a plugin is left in the service.
"""

from collections.abc import Coroutine, Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import typer
    from fastapi import APIRouter, FastAPI
    from pydantic_settings import BaseSettings
    from starlette.middleware import Middleware

    from api.middleware.sections import Section
    from api.state import AppState
    from corelane.cli.supervisor import Supervisor
    from corelane.domain.health_issues import HealthIssue
    from corelane.engine.backends.added import AddedFormat, AddedTarget
    from corelane.metrics.exposition import MetricSample
    from corelane.settings import Settings
    from corelane.store.jobs.store import JobStore
    from corelane.store.link.link import CommonLink
    from corelane.submitting.dry_run import DryRuns
    from corelane.tracing import Tracer
    from workers.loops.loop import Loop, LoopTools

#: The entry points' group.
GROUP = "corelane.plugins"


class Plugin:
    """One plugin. It overrides the methods for what it adds.

    Every process lists the plugins, so a plugin's module must import nothing heavy or optional: each method imports
    what it needs.
    """

    #: Its name: the same for its entry point, its folder and its extra.
    name: str = ""

    #: The kinds of its work that the keeper does, and that may become overdue (``corelane.store.overdue``).
    overdue: Sequence[str] = ()

    def settings(self) -> "type[BaseSettings] | None":
        """Return the class of its settings' fields; each is an environment variable ``CORELANE_…``, like core's."""
        return None

    def commands(self, cli: "typer.Typer") -> None:
        """Add its commands to the command line."""

    def exports(self) -> Mapping[str, str]:
        """Return the names that it adds to the package ``corelane``, each with the module that has it."""
        return {}

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

    async def check_url(self, settings: "Settings", store: "JobStore", name: str, url: str, owner: str) -> bool:
        """Return whether this plugin handles a job's ``input_url`` or ``output_url``; raise the error that refuses it.

        ``name`` is the name of the field. A URL that no plugin handles is refused.
        """
        return False

    def sections(self, state: "AppState") -> "Iterable[Section]":
        """Return its sections of pages, which identify callers in their own way."""
        return ()

    def addresses(self, settings: "Settings") -> Mapping[str, str]:
        """Return the paths that `corelane serve` shows once it is ready, by name."""
        return {}

    def loops(self, queue: str, tools: "LoopTools") -> "Iterable[Loop]":
        """Return its loops for the process that reads this queue (``corelane.domain.dispatch``)."""
        return ()

    def serve_tasks(self, settings: "Settings", supervisor: "Supervisor") -> "Iterable[Coroutine[Any, Any, None]]":
        """Return what `corelane serve` runs beside its workers until the service ends."""
        return ()

    async def gauges(self, link: "CommonLink") -> "Sequence[MetricSample]":
        """Return its samples for ``/metrics``, read from Redis at each scrape."""
        return ()

    async def health_issues(self, link: "CommonLink") -> "Sequence[HealthIssue]":
        """Return the issues of its part of the service, for ``/v1/overview`` and `corelane doctor`."""
        return ()

    def lua(self) -> Sequence[Path]:
        """Return its files for the Lua library, which are loaded after core's, in this order."""
        return ()

    def asgi_layers(self, state: "AppState") -> "Iterable[Middleware]":
        """Return its layers around the API's own; the first one is the innermost."""
        return ()

    def dry_runs(self, state: "AppState") -> "DryRuns | None":
        """Return the object that forecasts jobs in one API process, for ``dry_run`` of jobs and batches."""
        return None

    def tracer(self, role: str, instance: str) -> "Tracer | None":
        """Return the tracer of this process (``corelane.tracing.open_tracer``)."""
        return None

    def prune(self, settings: "Settings") -> Mapping[str, object]:
        """Return arguments of the keeper's ``prune`` for the plugin's own hook in Lua."""
        return {}

    def observers(self, core: Any) -> Iterable[Any]:
        """Return its observers of a core's work (``workers.core.observer``), for one core's process."""
        return ()

    def targets(self) -> "Iterable[AddedTarget]":
        """Return the targets whose artifacts it runs, and for which it compiles models."""
        return ()

    def formats(self) -> "Iterable[AddedFormat]":
        """Return its formats of artifacts for the CPU."""
        return ()


@cache
def installed() -> tuple[Plugin, ...]:
    """Return the installed plugins, by name; raise ImportError with a sentence if one cannot be imported."""
    return tuple(_load(each) for each in sorted(entry_points(group=GROUP), key=lambda each: each.name))


def _load(entry: EntryPoint) -> Plugin:
    """Return the plugin of an entry point."""
    where = f"the plugin {entry.name!r} ({entry.value})"
    try:
        plugin = entry.load()
    except Exception as error:
        raise ImportError(
            f"{where} cannot be imported: {error}; mend or uninstall the package that declares it"
        ) from error
    if not isinstance(plugin, Plugin) or plugin.name != entry.name:
        raise ImportError(f"{where} is not a corelane.plugin.Plugin of that name")
    return plugin
