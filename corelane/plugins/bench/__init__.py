"""The plugin ``bench``: ``corelane bench`` puts a load on a running service and reports how fast the service was."""

from typing import TYPE_CHECKING

from corelane.cli.plugin import CommandPlugin

if TYPE_CHECKING:
    import typer


class BenchPlugin(CommandPlugin):
    """One command."""

    name = "bench"

    def commands(self, cli: "typer.Typer") -> None:
        """Add ``corelane bench``."""
        from corelane.plugins.bench.command import bench

        cli.command()(bench)


plugin = BenchPlugin()
