"""The plugin ``lab``: ``corelane bench`` measures a service, ``corelane plan`` says how many cores a load needs."""

from typing import TYPE_CHECKING

from corelane.cli.plugin import CommandPlugin

if TYPE_CHECKING:
    import typer


class LabPlugin(CommandPlugin):
    """Two groups of commands."""

    name = "lab"

    def commands(self, cli: "typer.Typer") -> None:
        """Add ``bench`` and ``plan``."""
        from corelane.plugins.lab.cli.bench import bench
        from corelane.plugins.lab.cli.plan import plan

        cli.add_typer(bench, name="bench")
        cli.add_typer(plan, name="plan")


plugin = LabPlugin()
