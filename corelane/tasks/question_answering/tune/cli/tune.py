"""``corelane tune`` and ``corelane distil``: train a model on questions with known answers, then compile and judge it.

The same command resumes a run that was ended by Ctrl-C, SIGTERM or a kill. The steps after training are in ``tuned``.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from corelane.artifacts.manifest import model_name
from corelane.cli.commands import Made
from corelane.cli.errors import INTERRUPTED, require
from corelane.cli.folders import DataOption
from corelane.cli.output import error_console, print_line
from corelane.cli.service import JsonOption
from corelane.errors import CorelaneError
from corelane.settings import read_settings
from corelane.tasks.question_answering.tune.comparison import GateLimits
from corelane.tasks.question_answering.tune.training.plan import (
    SoftTargets,
    TrainingOptions,
    TrainingPlan,
    machine,
    shares_of,
)

#: The folder of runs in a data folder.
RUNS_NAME = "tune"


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The folder of a run, and the steps after it. Each field is an option of both commands."""

    run: Annotated[Path | None, typer.Option(help="Folder of the run; tune/NAME in the data folder if not given.")] = (
        None
    )
    checkpoint_every: Annotated[float, machine(min=0, metavar="SECONDS", help="Time between checkpoints.")] = 300.0
    name: Annotated[str | None, typer.Option(help="Name to serve it under; the model's own if not given.")] = None
    against: Annotated[
        str | None, typer.Option(help="Compare with this compiled version; the name's newest if not given.")
    ] = None
    no_compile: Annotated[bool, typer.Option("--no-compile", help="Train alone.")] = False
    data: DataOption = None


def tune(
    training: Annotated[TrainingOptions, Made(TrainingOptions)],
    options: Annotated[RunOptions, Made(RunOptions)],
    limits: Annotated[GateLimits, Made(GateLimits)],
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Built-in name, local folder or Hugging Face id.")],
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE[=SHARE]...",
            help="Questions in SQuAD's layout or as JSONL, gzipped or not; each epoch reads the share of a file.",
        ),
    ],
    as_json: JsonOption = False,
) -> None:
    """Fine-tune a model on questions with known answers; the same command goes on with an ended run."""
    paths, shares = shares_of(files)
    follow_plan(TrainingPlan(model=model, files=paths, shares=shares, **asdict(training)), options, limits, as_json)


def distil(
    training: Annotated[TrainingOptions, Made(TrainingOptions)],
    options: Annotated[RunOptions, Made(RunOptions)],
    limits: Annotated[GateLimits, Made(GateLimits)],
    teachers: Annotated[
        list[str], typer.Argument(metavar="TEACHER[=WEIGHT]...", help="Models with the student's tokenizer.")
    ],
    into: Annotated[str, typer.Option(metavar="STUDENT", help="The model that learns.")],
    questions: Annotated[
        list[str], typer.Option(metavar="FILE[=SHARE]", help="Questions as of `corelane tune`; may be repeated.")
    ],
    temperature: Annotated[float, typer.Option(min=0.1, max=20, help="How soft the teachers' chances are.")] = 2.0,
    teachers_part: Annotated[
        float, typer.Option(min=0, max=1, help="Part of the loss that is the distance to the teachers.")
    ] = 0.75,
    as_json: JsonOption = False,
) -> None:
    """Train a student to answer as several teachers do on average, and as the gold answers say."""
    paths, shares = shares_of(questions)
    names, weights = shares_of(teachers)
    targets = SoftTargets(tuple(map(str, names)), weights, temperature, teachers_part)
    plan = TrainingPlan(model=into, files=paths, shares=shares, soft_targets=targets, **asdict(training))
    follow_plan(plan, options, limits, as_json)


def follow_plan(plan: TrainingPlan, options: RunOptions, limits: GateLimits, as_json: bool) -> None:
    """Train, then compile and evaluate the result; exit code 130 if a signal ended the training."""
    require("tune", "torch", "transformers", "tokenizers")
    from corelane.tasks.question_answering.tune.cli.tuned import finish, refusal
    from corelane.tasks.question_answering.tune.training.run import tune as train

    settings = read_settings(data_dir=options.data)
    name = options.name or model_name(plan.model)
    folder = options.run or settings.data_dir / RUNS_NAME / name
    console = error_console()
    with stopped_by_signals() as stopped:
        finished = train(plan, folder, settings.models_dir, console.print, stopped, options.checkpoint_every)
    if finished is None:
        console.print(f"ended after a checkpoint in {folder}; the same command goes on")
        raise typer.Exit(INTERRUPTED)
    told: dict[str, Any] = {"run": str(folder), "model": str(finished.model), "figures": finished.figures}
    told["elapsed_s"] = round(finished.elapsed_s, 1)
    if options.no_compile:
        console.print(f"the model is in {finished.model}; compile it with: corelane compile {finished.model}")
        if as_json:
            print_line(told)
        return
    found = finish(finished.model, folder, name, settings, plan.model, options.against, limits, quiet=as_json)
    if as_json:
        print_line(told | asdict(found))
    if found.failing:
        raise CorelaneError(refusal(found))


@contextmanager
def stopped_by_signals() -> Iterator[Callable[[], bool]]:
    """Make Ctrl-C and SIGTERM end the training after its current step; a second Ctrl-C ends it at once."""
    asked: list[int] = []

    def ask(number: int, _: object) -> None:
        if asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        asked.append(number)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(asked)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
