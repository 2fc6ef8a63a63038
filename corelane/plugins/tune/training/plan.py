"""What a run learns, and how: the plan, and those of its fields that are options of `tune` and `distil`. No torch."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from corelane.artifacts.manifest import digest_file
from corelane.errors import SetupError

Precision = Literal["auto", "bf16", "fp32"]

#: Headings of the help.
LEARNING, JUDGING, MACHINE = "Learning", "Judging", "This machine"


@dataclass(frozen=True)
class TrainingOptions:
    """How a model is trained. Each field is an option of both commands."""

    dev: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Questions to judge by; may be repeated.", rich_help_panel=JUDGING),
    ] = None
    set_aside: Annotated[
        list[str] | None,
        typer.Option(metavar="TITLE", help="Evaluator by this article of the first file.", rich_help_panel=JUDGING),
    ] = None
    dev_share: Annotated[
        float,
        typer.Option(min=0.001, max=0.5, help="Share set aside if neither is given.", rich_help_panel=JUDGING),
    ] = 0.05
    judged: Annotated[int, typer.Option(min=1, help="Judgements an epoch.", rich_help_panel=JUDGING)] = 2
    patience: Annotated[
        int, typer.Option(min=1, help="End after this many without a better one.", rich_help_panel=JUDGING)
    ] = 6
    epochs: Annotated[int, typer.Option(min=1, help="Times that all questions are read.", rich_help_panel=LEARNING)] = 3
    learning_rate: Annotated[float, typer.Option(help="At its peak.", rich_help_panel=LEARNING)] = 5e-5
    warm_up: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the run in which it rises.", rich_help_panel=LEARNING)
    ] = 0.06
    weight_decay: Annotated[float, typer.Option(min=0, help="Of matrices.", rich_help_panel=LEARNING)] = 0.01
    clip: Annotated[float, typer.Option(help="Longest gradient.", rich_help_panel=LEARNING)] = 1.0
    average: Annotated[
        float, typer.Option(min=0, max=1, help="Decay of the average of the weights.", rich_help_panel=LEARNING)
    ] = 0.999
    dropout: Annotated[
        float, typer.Option(min=0, max=0.9, help="On the embeddings alone.", rich_help_panel=LEARNING)
    ] = 0.1
    frozen: Annotated[
        bool, typer.Option("--freeze-words", help="Keep the embeddings of words as they are.", rich_help_panel=LEARNING)
    ] = False
    batch_tokens: Annotated[int, typer.Option(min=64, help="Tokens a step.", rich_help_panel=LEARNING)] = 8192
    max_length: Annotated[int, typer.Option(min=32, help="Tokens a row, at most.", rich_help_panel=LEARNING)] = 384
    negatives: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            help="Share of answerable questions that are asked of another passage of the article too.",
            rich_help_panel=LEARNING,
        ),
    ] = 0.0
    limit: Annotated[
        int | None, typer.Option(min=1, help="Take only the first N questions of each file.", rich_help_panel=LEARNING)
    ] = None
    seed: Annotated[int, typer.Option(min=0, help="Of everything random.", rich_help_panel=LEARNING)] = 0
    precision: Annotated[
        Precision,
        typer.Option(help="Of products; weights learn in fp32. auto: bf16 where it is fast.", rich_help_panel=MACHINE),
    ] = "auto"
    threads: Annotated[int, typer.Option(min=0, help="CPU threads; 0: one a core.", rich_help_panel=MACHINE)] = 0
    saved_as: Annotated[
        Literal["fp32", "fp16"], typer.Option(help="Number format of the model's file.", rich_help_panel=MACHINE)
    ] = "fp32"


@dataclass(frozen=True, slots=True)
class SoftTargets:
    """How a student follows its teachers: their names and weights, the temperature, and their part of the loss."""

    teachers: tuple[str, ...]
    weights: tuple[float, ...]
    temperature: float
    part: float


@dataclass(frozen=True, kw_only=True)
class TrainingPlan(TrainingOptions):
    """What a run learns, and how. Two runs with the same plan on the same machine end with the same weights."""

    model: str
    files: tuple[Path, ...]
    shares: tuple[float, ...]
    soft_targets: SoftTargets | None = None

    def as_data(self) -> dict[str, Any]:
        """Return the plan as plain data, with the digests of its files: a changed file is another run."""
        files, dev = ([[path.name, digest_file(path)] for path in each] for each in (self.files, self.dev or ()))
        data: dict[str, Any] = json.loads(json.dumps(asdict(self), default=str))
        # Runs from before the field had its name go on.
        data["lesson"] = data.pop("soft_targets")
        return data | {"files": files, "dev": dev, "set_aside": list(self.set_aside or ())}


def shares_of(files: Sequence[str]) -> tuple[tuple[Path, ...], tuple[float, ...]]:
    """Return the paths and shares of files given as ``FILE`` or ``FILE=SHARE``."""
    paths, shares = [], []
    for each in files:
        path, _, share = each.rpartition("=") if "=" in each and not Path(each).exists() else (each, "", "1")
        try:
            shares.append(float(share))
        except ValueError:
            raise SetupError(f"{each!r}: a share is a number, as in {path}=0.5") from None
        if not 0 < shares[-1] <= 100:
            raise SetupError(f"{each!r}: a share is above 0 and at most 100")
        paths.append(Path(path))
    return tuple(paths), tuple(shares)
