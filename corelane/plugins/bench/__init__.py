"""The plugin ``bench``: ``corelane bench`` offers a running service a load and says how fast it was."""

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
