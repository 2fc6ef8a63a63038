"""The door of the command line: what a plugin can add to it, and to what ``corelane serve`` runs and shows."""

from collections.abc import Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from corelane.plugin import Plugin

if TYPE_CHECKING:
    import typer

    from corelane.cli.supervisor import Supervisor
    from corelane.settings import Settings


class CommandPlugin(Plugin):
    """A plugin that adds to the command line."""

    def commands(self, cli: "typer.Typer") -> None:
        """Add its commands to the command line."""

    def addresses(self, settings: "Settings") -> Mapping[str, str]:
        """Return the paths that `corelane serve` shows once it is ready, by name."""
        return {}

    def serve_tasks(self, settings: "Settings", supervisor: "Supervisor") -> "Iterable[Coroutine[Any, Any, None]]":
        """Return what `corelane serve` runs beside its workers until the service ends."""
        return ()
