"""``corelane calibrate``: fit what makes a compiled model's scores probabilities, on questions with known answers.

Runs the model here, on one thread, as a worker would; needs no service. The figures shown are cross-validated: each
fifth of the file, cut between contexts, is scored with curves fitted on the rest. Workers use the calibration from the
next time they load the model.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from corelane.artifacts.manifest import artifact_folders, digest_file, find_artifact, model_name
from corelane.cli.errors import require
from corelane.cli.evaluate import read_document
from corelane.cli.folders import DataOption
from corelane.cli.output import print_line
from corelane.cli.service import JsonOption
from corelane.errors import InvalidInput, SetupError
from corelane.quality.squad import (
    PrecisionPoint,
    Question,
    best_over,
    calibration_error,
    exact_match,
    precision_curve,
    read_questions,
)
from corelane.settings import NEURON_PYTHON, read_settings

if TYPE_CHECKING:
    from corelane.artifacts.calibration import Calibration
    from corelane.artifacts.manifest import Artifact
    from corelane.engine.calibrating.fitting import Observation

#: Parts of the file, each scored with curves fitted on the others.
FOLDS = 5

#: A context, and the best span in it for one question.
Seen = tuple[str, "Observation"]

#: Questions answered between two steps of the progress bar.
STEP = 64

#: Values of ``min_precision`` whose effect is shown.
SHOWN = (0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(frozen=True, slots=True)
class CalibratedSpan:
    """A question's best span with calibrated scores, and whether it was right, or the question has no answer."""

    score: float
    no_answer_score: float
    right: bool
    answerable: bool

    @property
    def is_given(self) -> bool:
        """Whether the answer is likelier to be right than missing."""
        return self.score >= self.no_answer_score

    @property
    def response(self) -> tuple[float, float]:
        """The confidence in the response, and 1 if it is right."""
        if self.is_given:
            return self.score, float(self.right)
        return self.no_answer_score, float(not self.answerable)


@dataclass(frozen=True, slots=True)
class Judgement:
    """The cross-validated quality of a calibration: ECE, answers likelier right than missing, effects of precisions."""

    ece: float
    likelier_right: int
    precisions: Sequence[PrecisionPoint]


def calibrate(
    file: Annotated[Path, typer.Argument(metavar="FILE.json[.gz]", help="Questions in SQuAD's v2.0 layout.")],
    model: Annotated[
        str | None, typer.Option(help="A compiled model or version; the default one if not given.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Take only the first N questions.")] = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a model's scores probabilities: fit its calibration and keep it beside its artifact."""
    settings = read_settings(data_dir=data)
    questions = read_questions(read_document(file)).questions[:limit]
    name = model or settings.model
    artifact = find_artifact(settings.artifact_root, name if "@" in name else model_name(name), settings.target)
    require("all", "numpy", "torch", "tokenizers")
    from corelane.artifacts.calibration import write_calibration
    from corelane.engine.calibrating.fitting import check_kinds

    seen = observe(artifact, questions, settings.neuron_python)
    check_kinds([observation for _, observation in seen])
    calibration = calibrate_on(artifact, file, [each for _, each in seen])
    console = Console(highlight=False, soft_wrap=True, stderr=as_json)
    judged: Judgement | None = None
    try:
        judged = judge(seen)
    except InvalidInput as error:
        console.print(f"fitted, but too few contexts to cross-validate: {error.detail}", style="yellow")
    version = artifact.manifest.version_id
    if judged is not None and not as_json:
        console.print(report(judged, f"{version}, calibrated on {len(seen):,} questions"))
    try:
        path = write_calibration(artifact.path, calibration)
        # Those for other CPU kinds too: the same scores wherever a question is answered.
        for folder in artifact_folders(artifact.path.parent, artifact.manifest.target):
            write_calibration(folder, calibration)
    except OSError as error:
        raise SetupError(f"{artifact.path} cannot be written: {error.strerror or error}") from None
    if as_json:
        result = {"id": version, "path": str(path), "questions": len(seen)}
        print_line(result | {"judged": None if judged is None else asdict(judged)})
    else:
        console.print(f"kept in {path}; workers use it once they load the model: `corelane models reload`")


def calibrate_on(artifact: "Artifact", file: Path, observations: Sequence["Observation"]) -> "Calibration":
    """Return the calibration of an artifact, fitted on observations of a file."""
    from corelane.artifacts.calibration import Calibration
    from corelane.engine.calibrating.fitting import fit_curves

    answerable, right = fit_curves(observations)
    return Calibration(
        version=artifact.manifest.version,
        dtype=artifact.manifest.dtype,
        answerable=answerable,
        right=right,
        file=file.name,
        file_digest=digest_file(file),
        questions=len(observations),
        created_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
    ).signed()


def observe(artifact: "Artifact", questions: Sequence[Question], neuron_python: str = NEURON_PYTHON) -> list[Seen]:
    """Return the best span of each question, uncalibrated; questions without a span are left out."""
    from compile.model.timing import one_thread
    from corelane.engine.backends.protocol import open_backend
    from corelane.engine.calibrating.evidence import WitnessRunner
    from corelane.engine.calibrating.fitting import Observation
    from corelane.engine.task import Query

    seen: list[Seen] = []
    bar = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with one_thread(), Progress(*bar, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("asking", total=len(questions))
        runner = WitnessRunner.open(
            open_backend(artifact.manifest.target, neuron_python=neuron_python), artifact, calibrated=False
        )
        for at in range(0, len(questions), STEP):
            part = questions[at : at + STEP]
            for question, best in zip(part, runner.testify([Query(q.question, q.context) for q in part]), strict=True):
                if best is not None:
                    known = bool(question.references)
                    text = question.context[best.start : best.end]
                    is_right = known and best_over(exact_match, text, question.references) == 1
                    seen.append((question.context, Observation(best.margin, best.log_share, is_right, known)))
            progress.advance(task, len(part))
        runner.close()
    return seen


def judge(seen: Sequence[Seen]) -> Judgement:
    """Return the quality of the calibration on unseen questions; raise InvalidInput as ``cross_validate`` does."""
    judged = list(cross_validate(seen))
    return Judgement(
        ece=calibration_error([each.response for each in judged]),
        likelier_right=sum(each.is_given for each in judged),
        precisions=precision_curve([(each.score, each.right) for each in judged], SHOWN),
    )


def report(judged: Judgement, title: str) -> Table:
    """Return a judgement for readers."""
    figures = f"ECE {judged.ece:.3f} · {judged.likelier_right:,} answers likelier right than missing"
    caption = f"each fifth scored with curves of the rest · {figures}"
    table = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
    for heading in ("min_precision", "answered", "of all", "exactly right"):
        table.add_column(heading, justify="right")
    for asked in judged.precisions:
        share = "–" if asked.precision is None else f"{asked.precision:.1%}"
        table.add_row(f"{asked.min_precision:g}", f"{asked.answered:,}", f"{asked.coverage:.1%}", share)
    return table


def cross_validate(seen: Sequence[Seen]) -> Iterator[CalibratedSpan]:
    """Yield each observation with its scores by curves that never saw its fifth.

    Raises InvalidInput if the observations outside a fifth are too few to fit curves.
    """
    from corelane.engine.calibrating.fitting import fit_curves

    for start, end in cut_folds([context for context, _ in seen], FOLDS):
        answerable, right = fit_curves([each for _, each in [*seen[:start], *seen[end:]]])
        for _, each in seen[start:end]:
            known = answerable.log_chance(each.margin)
            score = math.exp(known + right.log_chance(each.log_share))
            yield CalibratedSpan(score, 1 - math.exp(known), each.right, each.answerable)


def cut_folds(groups: Sequence[str], folds: int) -> Iterator[tuple[int, int]]:
    """Yield the bounds of about equal folds; neighbours of one group stay together."""
    start = 0
    for number in range(1, folds + 1):
        end = max(start, len(groups) * number // folds)
        while start < end < len(groups) and groups[end] == groups[end - 1]:
            end += 1
        if end > start:
            yield start, end
        start = end
