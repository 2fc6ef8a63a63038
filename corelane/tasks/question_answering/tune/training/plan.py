"""The plan of a run, and its fields that are options of `tune` and `distil`. No torch."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from corelane.artifacts.manifest import digest_file
from corelane.errors import SetupError

Precision = Literal["auto", "bf16", "fp32"]

#: Options under the headings of the help.
learning, judging, machine = (
    partial(typer.Option, rich_help_panel=heading) for heading in ("Learning", "Judging", "This machine")
)


@dataclass(frozen=True)
class TrainingOptions:
    """How a model is trained. Each field is an option of both commands."""

    dev: Annotated[list[Path] | None, judging(metavar="FILE", help="Questions to judge by; may be repeated.")] = None
    set_aside: Annotated[
        list[str] | None, judging(metavar="TITLE", help="Judge by this article of the first file.")
    ] = None
    dev_share: Annotated[float, judging(min=0.001, max=0.5, help="Share set aside if neither is given.")] = 0.05
    judged: Annotated[int, judging(min=1, help="Judgements an epoch.")] = 2
    patience: Annotated[int, judging(min=1, help="End after this many without a better one.")] = 6
    epochs: Annotated[int, learning(min=1, help="Times that all questions are read.")] = 3
    learning_rate: Annotated[float, learning(help="At its peak.")] = 5e-5
    warm_up: Annotated[float, learning(min=0, max=1, help="Share of the run in which it rises.")] = 0.06
    weight_decay: Annotated[float, learning(min=0, help="Of matrices.")] = 0.01
    clip: Annotated[float, learning(help="Longest gradient.")] = 1.0
    average: Annotated[float, learning(min=0, max=1, help="Decay of the average of the weights.")] = 0.999
    dropout: Annotated[float, learning(min=0, max=0.9, help="On the embeddings alone.")] = 0.1
    frozen: Annotated[bool, learning("--freeze-words", help="Keep the embeddings of words as they are.")] = False
    batch_tokens: Annotated[int, learning(min=64, help="Tokens a step.")] = 8192
    max_length: Annotated[int, learning(min=32, help="Tokens a row, at most.")] = 384
    negatives: Annotated[
        float,
        learning(
            min=0,
            max=1,
            help="Share of answerable questions that are asked of another passage of the article too.",
        ),
    ] = 0.0
    limit: Annotated[int | None, learning(min=1, help="Take only the first N questions of each file.")] = None
    seed: Annotated[int, learning(min=0, help="Of everything random.")] = 0
    precision: Annotated[
        Precision, machine(help="Of products; weights learn in fp32. auto: bf16 where it is fast.")
    ] = "auto"
    threads: Annotated[int, machine(min=0, help="CPU threads; 0: one a core.")] = 0
    saved_as: Annotated[Literal["fp32", "fp16"], machine(help="Number format of the model's file.")] = "fp32"


@dataclass(frozen=True, slots=True)
class SoftTargets:
    """How a student follows its teachers: their names and weights, the temperature, and their part of the loss."""

    teachers: tuple[str, ...]
    weights: tuple[float, ...]
    temperature: float
    part: float


@dataclass(frozen=True, kw_only=True)
class TrainingPlan(TrainingOptions):
    """All choices of a run. Two runs with the same plan on the same machine end with the same weights."""

    model: str
    files: tuple[Path, ...]
    shares: tuple[float, ...]
    soft_targets: SoftTargets | None = None

    def as_data(self) -> dict[str, Any]:
        """Return the plan as plain data, with the digests of its files, so that a changed file means another run."""
        files, dev = ([[path.name, digest_file(path)] for path in each] for each in (self.files, self.dev or ()))
        data: dict[str, Any] = json.loads(json.dumps(asdict(self), default=str))
        # Runs from before this field was renamed can be resumed.
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
