"""The quality plugin: measure models on questions with known answers, compare versions, and calibrate them."""

from typing import TYPE_CHECKING

from corelane.cli.plugin import CommandPlugin

if TYPE_CHECKING:
    import typer


class QualityPlugin(CommandPlugin):
    """``corelane eval`` and ``corelane calibrate``."""

    name = "quality"

    def commands(self, cli: "typer.Typer") -> None:
        """Add both commands."""
        from corelane.tasks.question_answering.quality.calibrate import calibrate
        from corelane.tasks.question_answering.quality.evaluate import evaluate

        cli.command("eval")(evaluate)
        cli.command()(calibrate)


plugin = QualityPlugin()
