"""The tune plugin: train, evaluate and calibrate models on known answers, and run the pipeline in your own process."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from corelane.cli.plugin import CommandPlugin

if TYPE_CHECKING:
    import typer


class TunePlugin(CommandPlugin):
    """``corelane tune``, ``distil``, ``eval`` and ``calibrate``; ``corelane.pipeline``."""

    name = "tune"

    def commands(self, cli: "typer.Typer") -> None:
        """Add the commands that work with models and known answers."""
        from corelane.tasks.question_answering.tune.cli.calibrate import calibrate
        from corelane.tasks.question_answering.tune.cli.evaluate import evaluate
        from corelane.tasks.question_answering.tune.cli.tune import distil, tune

        cli.command("eval")(evaluate)
        for command in (calibrate, tune, distil):
            cli.command()(command)

    def exports(self) -> Mapping[str, str]:
        """Return the name of the pipeline."""
        return {"pipeline": "corelane.tasks.question_answering.tune.in_process.pipeline"}


plugin = TunePlugin()
