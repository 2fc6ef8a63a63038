"""``corelane calibrate``: make a compiled model's scores probabilities and choose when it answers, by known answers.

Runs the model here, on one thread, as a worker would; needs no service. The figures shown are cross-validated: each
fifth of the passages is scored by what was fitted on the rest. Workers use the calibration from the next time they load
the model.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
from corelane.quality.comparison import VersionQuality, quality, read
from corelane.quality.squad import PrecisionPoint, Question, precision_curve, read_questions
from corelane.settings import NEURON_PYTHON, read_settings

if TYPE_CHECKING:
    from corelane.artifacts.calibration import Calibration
    from corelane.artifacts.manifest import Artifact
    from corelane.cli.held_out import Seen
    from corelane.engine.calibrating.fitting import Observation

#: Questions answered between two steps of the progress bar.
STEP = 64

#: Values of ``min_precision`` whose effect is shown.
SHOWN = (0.5, 0.6, 0.7, 0.8, 0.9)


@dataclass(frozen=True, slots=True)
class Judgement:
    """The quality of a calibration on questions that it was not fitted on, and the effects of precisions.

    ``always_f1`` is over the answerable questions, if every question gets an answer.
    """

    quality: VersionQuality
    always_f1: float
    precisions: Sequence[PrecisionPoint]

    def as_data(self) -> dict[str, Any]:
        """Return the figures as plain data."""
        precisions = [asdict(each) for each in self.precisions]
        return asdict(self.quality) | {"always_f1": self.always_f1, "precisions": precisions}


def calibrate(
    file: Annotated[Path, typer.Argument(metavar="FILE.json[.gz]", help="Questions in SQuAD's v2.0 layout.")],
    model: Annotated[
        str | None, typer.Option(help="A compiled model or version; the default one if not given.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Take only the first N questions.")] = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a model's scores probabilities and choose when it answers: fit its calibration, kept beside its artifact."""
    settings = read_settings(data_dir=data)
    questions = read_questions(read_document(file)).questions[:limit]
    name = model or settings.model
    artifact = find_artifact(settings.artifact_root, name if "@" in name else model_name(name), settings.target)
    require("all", "numpy", "torch", "tokenizers")
    from corelane.artifacts.calibration import write_calibration
    from corelane.cli.held_out import observations
    from corelane.engine.calibrating.fitting import check_kinds

    seen = observe(artifact, questions, settings.neuron_python)
    observed = observations(seen)
    check_kinds(observed)
    calibration = calibrate_on(artifact, file, observed)
    console = Console(highlight=False, soft_wrap=True, stderr=as_json)
    judged: Judgement | None = None
    try:
        judged = judge(seen)
    except InvalidInput as error:
        console.print(f"fitted, but too few contexts to cross-validate: {error.detail}", style="yellow")
    version = artifact.manifest.version_id
    if judged is not None and not as_json:
        console.print(report(judged, f"{version}, calibrated on {len(observed):,} questions"))
    try:
        path = write_calibration(artifact.path, calibration)
        # Those for other CPU kinds too: the same scores wherever a question is answered.
        for folder in artifact_folders(artifact.path.parent, artifact.manifest.target):
            write_calibration(folder, calibration)
    except OSError as error:
        raise SetupError(f"{artifact.path} cannot be written: {error.strerror or error}") from None
    if as_json:
        result = {
            "id": version,
            "path": str(path),
            "questions": len(observed),
            "no_answer_threshold": calibration.no_answer_threshold,
        }
        print_line(result | {"judged": None if judged is None else judged.as_data()})
    else:
        console.print(f"kept in {path}; workers use it once they load the model: `corelane models reload`")


def calibrate_on(artifact: "Artifact", file: Path, observed: Sequence["Observation"]) -> "Calibration":
    """Return the calibration of an artifact, fitted on observations of a file."""
    from corelane.artifacts.calibration import Calibration
    from corelane.engine.calibrating.fitting import fit

    return Calibration(
        version=artifact.manifest.version,
        dtype=artifact.manifest.dtype,
        **fit(observed)._asdict(),
        file=file.name,
        file_digest=digest_file(file),
        questions=len(observed),
        created_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
    ).signed()


def observe(artifact: "Artifact", questions: Sequence[Question], neuron_python: str = NEURON_PYTHON) -> list["Seen"]:
    """Return each question with its best span, uncalibrated."""
    from compile.model.timing import one_thread
    from corelane.engine.backends.registry import open_backend
    from corelane.engine.calibrating.evidence import WitnessRunner
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
            seen += zip(part, runner.testify([Query(each.question, each.context) for each in part]), strict=True)
            progress.advance(task, len(part))
        runner.close()
    return seen


def judge(seen: Sequence["Seen"]) -> Judgement:
    """Return the quality of the calibration on unseen questions; raise InvalidInput as ``held_out`` does."""
    from corelane.cli.held_out import held_out, observations

    results = held_out(seen)
    observed = observations(seen)
    scores = [result.answers[0].score for result in results if result.answers]
    return Judgement(
        quality=quality([read(question, result) for (question, _), result in zip(seen, results, strict=True)]),
        always_f1=100 * sum(each.f1 for each in observed) / sum(each.answerable for each in observed),
        precisions=precision_curve([(s, each.right) for s, each in zip(scores, observed, strict=True)], SHOWN),
    )


def report(judged: Judgement, title: str) -> Table:
    """Return a judgement for readers."""
    found = judged.quality
    caption = (
        f"each fifth scored by a fit of the rest · ECE {found.ece:.3f}\n"
        f"as it answers by default: F1 {found.f1:.1f}, of the answerable questions {found.answerable_f1:.1f} "
        f"({judged.always_f1:.1f} if all get an answer); {found.no_answer_accuracy:.1f} % of the others get none"
    )
    table = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
    for heading in ("min_precision", "answered", "of all", "exactly right"):
        table.add_column(heading, justify="right")
    for asked in judged.precisions:
        share = "–" if asked.precision is None else f"{asked.precision:.1%}"
        table.add_row(f"{asked.min_precision:g}", f"{asked.answered:,}", f"{asked.coverage:.1%}", share)
    return table
