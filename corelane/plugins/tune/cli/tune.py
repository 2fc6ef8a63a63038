"""``corelane tune`` and ``corelane distil``: train a model on questions with known answers, then compile and judge it.

The same command goes on with a run that was ended, by Ctrl-C, SIGTERM or a kill. What comes after training is in
``tuned``.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from corelane.artifacts.manifest import model_name
from corelane.cli.commands import Made
from corelane.cli.errors import INTERRUPTED, require
from corelane.cli.folders import DataOption
from corelane.cli.output import error_console, print_line
from corelane.cli.service import JsonOption
from corelane.errors import CorelaneError
from corelane.plugins.tune.cli.evaluate_against import gate_limits
from corelane.plugins.tune.cli.tuned import finish, refusal
from corelane.plugins.tune.comparison import Limits
from corelane.settings import read_settings

if TYPE_CHECKING:
    from corelane.plugins.tune.training.run import Plan

#: The folder of runs in a data folder.
RUNS_NAME = "tune"

#: Headings of the help.
LEARNING, JUDGING, MACHINE = "Learning", "Judging", "This machine"


def plan_options(
    *,
    dev: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Questions to judge by; may be repeated.", rich_help_panel=JUDGING),
    ] = None,
    set_aside: Annotated[
        list[str] | None,
        typer.Option(metavar="TITLE", help="Judge by this article of the first file.", rich_help_panel=JUDGING),
    ] = None,
    dev_share: Annotated[
        float,
        typer.Option(min=0.001, max=0.5, help="Share set aside if neither is given.", rich_help_panel=JUDGING),
    ] = 0.05,
    judged: Annotated[int, typer.Option(min=1, help="Judgements an epoch.", rich_help_panel=JUDGING)] = 2,
    patience: Annotated[
        int, typer.Option(min=1, help="End after this many without a better one.", rich_help_panel=JUDGING)
    ] = 6,
    epochs: Annotated[
        int, typer.Option(min=1, help="Times that all questions are read.", rich_help_panel=LEARNING)
    ] = 3,
    learning_rate: Annotated[float, typer.Option(help="At its peak.", rich_help_panel=LEARNING)] = 5e-5,
    warm_up: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the run in which it rises.", rich_help_panel=LEARNING)
    ] = 0.06,
    weight_decay: Annotated[float, typer.Option(min=0, help="Of matrices.", rich_help_panel=LEARNING)] = 0.01,
    clip: Annotated[float, typer.Option(help="Longest gradient.", rich_help_panel=LEARNING)] = 1.0,
    average: Annotated[
        float, typer.Option(min=0, max=1, help="Decay of the average of the weights.", rich_help_panel=LEARNING)
    ] = 0.999,
    dropout: Annotated[
        float, typer.Option(min=0, max=0.9, help="On the embeddings alone.", rich_help_panel=LEARNING)
    ] = 0.1,
    freeze_words: Annotated[
        bool, typer.Option("--freeze-words", help="Keep the embeddings of words as they are.", rich_help_panel=LEARNING)
    ] = False,
    batch_tokens: Annotated[int, typer.Option(min=64, help="Tokens a step.", rich_help_panel=LEARNING)] = 8192,
    max_length: Annotated[int, typer.Option(min=32, help="Tokens a row, at most.", rich_help_panel=LEARNING)] = 384,
    negatives: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            help="Share of answerable questions that are asked of another passage of the article too.",
            rich_help_panel=LEARNING,
        ),
    ] = 0.0,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Take only the first N questions of each file.", rich_help_panel=LEARNING)
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of everything random.", rich_help_panel=LEARNING)] = 0,
    precision: Annotated[
        Literal["auto", "bf16", "fp32"],
        typer.Option(help="Of products; weights learn in fp32. auto: bf16 where it is fast.", rich_help_panel=MACHINE),
    ] = "auto",
    threads: Annotated[int, typer.Option(min=0, help="CPU threads; 0: one a core.", rich_help_panel=MACHINE)] = 0,
    saved_as: Annotated[
        Literal["fp32", "fp16"], typer.Option(help="Number format of the model's file.", rich_help_panel=MACHINE)
    ] = "fp32",
) -> dict[str, Any]:
    """Return the fields of a plan that options of both commands give."""
    return {
        "dev": tuple(dev or ()),
        "set_aside": tuple(set_aside or ()),
        "dev_share": dev_share,
        "judged": judged,
        "patience": patience,
        "epochs": epochs,
        "learning_rate": learning_rate,
        "warm_up": warm_up,
        "weight_decay": weight_decay,
        "clip": clip,
        "average": average,
        "dropout": dropout,
        "frozen": freeze_words,
        "batch_tokens": batch_tokens,
        "max_length": max_length,
        "negatives": negatives,
        "limit": limit,
        "seed": seed,
        "precision": precision,
        "threads": threads,
        "saved_as": saved_as,
    }


def after_options(
    *,
    run: Annotated[
        Path | None, typer.Option(help="Folder of the run; tune/NAME in the data folder if not given.")
    ] = None,
    checkpoint_every: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Time between checkpoints.", rich_help_panel=MACHINE)
    ] = 300.0,
    name: Annotated[str | None, typer.Option(help="Name to serve it under; the model's own if not given.")] = None,
    against: Annotated[
        str | None, typer.Option(help="Compare with this compiled version; the name's newest if not given.")
    ] = None,
    no_compile: Annotated[bool, typer.Option("--no-compile", help="Train alone.")] = False,
    data: DataOption = None,
) -> dict[str, Any]:
    """Return where a run lies, and what comes after it."""
    return {"run": run, "every_s": checkpoint_every, "name": name, "against": against} | {
        "compiles": not no_compile,
        "data": data,
    }


def tune(
    given: Annotated[dict[str, Any], Made(plan_options)],
    after: Annotated[dict[str, Any], Made(after_options)],
    limits: Annotated[Limits, Made(gate_limits)],
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
    require("all", "torch", "transformers", "tokenizers")
    from corelane.plugins.tune.training.run import Plan, shares_of

    paths, shares = shares_of(files)
    follow_plan(Plan(model=model, files=paths, shares=shares, **given), after, limits, as_json)


def distil(
    given: Annotated[dict[str, Any], Made(plan_options)],
    after: Annotated[dict[str, Any], Made(after_options)],
    limits: Annotated[Limits, Made(gate_limits)],
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
    """Train a student to answer as several teachers do on average, and as the references say."""
    require("all", "torch", "transformers", "tokenizers")
    from corelane.plugins.tune.training.run import Plan, shares_of
    from corelane.plugins.tune.training.teachers import Lesson

    paths, shares = shares_of(questions)
    names, weights = shares_of(teachers)
    lesson = Lesson(tuple(map(str, names)), weights, temperature, teachers_part)
    follow_plan(Plan(model=into, files=paths, shares=shares, lesson=lesson, **given), after, limits, as_json)


def follow_plan(plan: "Plan", after: dict[str, Any], limits: Limits, as_json: bool) -> None:
    """Train, then compile and judge what came out; exit code 130 if a signal ended the training."""
    from corelane.plugins.tune.training.run import tune as train

    settings = read_settings(data_dir=after["data"])
    name = after["name"] or model_name(plan.model)
    folder = after["run"] or settings.data_dir / RUNS_NAME / name
    console = error_console()
    with stopped_by_signals() as stopped:
        finished = train(plan, folder, settings.models_dir, console.print, stopped, after["every_s"])
    if finished is None:
        console.print(f"ended after a checkpoint in {folder}; the same command goes on")
        raise typer.Exit(INTERRUPTED)
    told: dict[str, Any] = {"run": str(folder), "model": str(finished.model), "figures": finished.figures}
    told["elapsed_s"] = round(finished.elapsed_s, 1)
    if not after["compiles"]:
        console.print(f"the model is in {finished.model}; compile it with: corelane compile {finished.model}")
        if as_json:
            print_line(told)
        return
    found = finish(finished.model, folder, name, settings, plan.model, after["against"], limits, quiet=as_json)
    if as_json:
        print_line(told | asdict(found))
    if found.failing:
        raise CorelaneError(refusal(found))


@contextmanager
def stopped_by_signals() -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C and SIGTERM end the training after its next step; a second Ctrl-C ends it at once."""
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
