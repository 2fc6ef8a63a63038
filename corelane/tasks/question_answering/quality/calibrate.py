"""``corelane calibrate``: make a compiled model's scores probabilities and choose when it answers, by known answers.

Runs the model here, on one thread, like a worker; needs no service. The figures shown are cross-validated: each fifth
of the passages is scored by a calibration fitted on the rest. Workers use the calibration from the next time they load
the model.
"""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from corelane.artifacts.calibration import Calibration, write_calibration
from corelane.artifacts.finding import find_artifact
from corelane.artifacts.manifest import Artifact, artifact_folders, digest_file, model_name
from corelane.cli.errors import require
from corelane.cli.folders import DataOption
from corelane.cli.output import print_line
from corelane.cli.service import JsonOption
from corelane.errors import InvalidInput
from corelane.settings import read_settings
from corelane.tasks.question_answering.quality.evaluation import Metrics, PrecisionPoint, evaluate, precision_curve
from corelane.tasks.question_answering.squad import read_set

if TYPE_CHECKING:
    from corelane.tasks.question_answering.quality.fitting import Observation, Seen

#: Values of ``min_precision`` whose effect is shown.
SHOWN = (0.5, 0.6, 0.7, 0.8, 0.9)


def calibrate(
    file: Annotated[Path, typer.Argument(metavar="FILE.json[.gz]", help="Questions in SQuAD's v2.0 layout.")],
    model: Annotated[
        str | None, typer.Option(help="A compiled model or version; the default one if not given.")
    ] = None,
    data: DataOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a model's scores probabilities and choose when it answers: fit its calibration, kept beside its artifact."""
    settings = read_settings(data_dir=data)
    questions = read_set(file).questions
    name = model or settings.model
    artifact = find_artifact(settings.artifact_root, name if "@" in name else model_name(name), settings.target)
    require("compile", "numpy", "torch", "tokenizers")
    from corelane.tasks.question_answering.quality.fitting import observations, observe

    version = artifact.manifest.version_id
    seen = observe(artifact, questions, settings)
    observed = observations(seen)
    calibration = calibrate_on(artifact, file, observed)
    console = Console(highlight=False, soft_wrap=True, stderr=as_json)
    judged: dict[str, Any] | None = None
    try:
        metrics, precisions = measure_unseen(seen)
        judged = asdict(metrics) | {"precisions": [asdict(each) for each in precisions]}
        if not as_json:
            console.print(table_of(metrics, precisions, f"{version}, calibrated on {len(observed):,} questions"))
    except InvalidInput as error:
        console.print(f"fitted, but too few contexts to cross-validate: {error.detail}", style="yellow")
    # A CPU has a folder for each kind. A calibration is that of the version, whatever kind runs it.
    for folder in artifact_folders(artifact.path.parent, artifact.manifest.target):
        write_calibration(folder, calibration)
    path = write_calibration(artifact.path, calibration)
    if as_json:
        threshold = calibration.no_answer_threshold
        told = {"id": version, "path": str(path), "questions": len(observed), "no_answer_threshold": threshold}
        print_line(told | {"judged": judged})
    else:
        console.print(f"kept in {path}; workers use it once they load the model: `corelane models reload`")


def calibrate_on(artifact: Artifact, file: Path, observed: Sequence["Observation"]) -> Calibration:
    """Return the calibration of an artifact, fitted on observations of a file; raise InvalidInput for too few."""
    from corelane.tasks.question_answering.quality.fitting import check_kinds, fit

    check_kinds(observed)
    return Calibration(
        version=artifact.manifest.version,
        dtype=artifact.manifest.dtype,
        **fit(observed)._asdict(),
        file=file.name,
        file_digest=digest_file(file),
        questions=len(observed),
        created_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
    ).signed()


def measure_unseen(seen: Sequence["Seen"]) -> tuple[Metrics, list[PrecisionPoint]]:
    """Return the quality of a calibration on unseen questions, and the effect of each ``SHOWN`` value on them."""
    from corelane.tasks.question_answering.quality.fitting import held_out, observations

    results = held_out(seen)
    scores = [result.answers[0].score for result in results if result.answers]
    pairs = [(score, each.right) for score, each in zip(scores, observations(seen), strict=True)]
    return evaluate([question for question, _ in seen], results), precision_curve(pairs, SHOWN)


def table_of(found: Metrics, precisions: Sequence[PrecisionPoint], title: str) -> Table:
    """Return the figures for readers."""
    caption = (
        f"each fifth scored by a fit of the rest · ECE {found.ece:.3f}\n"
        f"as it answers by default: F1 {found.f1:.1f}, of the answerable questions {found.answerable_f1:.1f} "
        f"({found.always_f1:.1f} if all get an answer); {found.no_answer_accuracy:.1f} % of the others get none"
    )
    table = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
    for heading in ("min_precision", "answered", "of all", "exactly right"):
        table.add_column(heading, justify="right")
    for point in precisions:
        share = "–" if point.precision is None else f"{point.precision:.1%}"
        table.add_row(f"{point.min_precision:g}", f"{point.answered:,}", f"{point.coverage:.1%}", share)
    return table
