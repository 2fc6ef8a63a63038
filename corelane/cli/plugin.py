"""The command line's interface for plugins: commands, and addresses that ``corelane serve`` shows."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from corelane.plugin import Plugin

if TYPE_CHECKING:
    import typer

    from corelane.settings import Settings


class CommandPlugin(Plugin):
    """A plugin that adds to the command line."""

    def commands(self, cli: "typer.Typer") -> None:
        """Add the plugin's commands to the command line."""

    def addresses(self, settings: "Settings") -> Mapping[str, str]:
        """Return the paths that `corelane serve` shows once it is ready, by name."""
        return {}
