"""The door of the command line: what a plugin can add to it, and to what ``corelane serve`` shows."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from corelane.plugin import Plugin

if TYPE_CHECKING:
    import typer

    from corelane.settings import Settings


class CommandPlugin(Plugin):
    """A plugin that adds to the command line."""

    def commands(self, cli: "typer.Typer") -> None:
        """Add its commands to the command line."""

    def addresses(self, settings: "Settings") -> Mapping[str, str]:
        """Return the paths that `corelane serve` shows once it is ready, by name."""
        return {}
