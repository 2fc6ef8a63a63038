"""The steps after training: compile the model, calibrate it, compare it with the previous one, on one thread.

The service is not changed: the commands that roll the version out are printed.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compile.build import build as compile_model
from corelane.artifacts.calibration import CALIBRATION_NAME, SHIPPED_NAME, carry_calibration, read_calibration
from corelane.artifacts.finding import find_artifact
from corelane.artifacts.manifest import Artifact, digest_file, model_name
from corelane.cli.compile import show_progress
from corelane.cli.output import error_console
from corelane.errors import ArtifactRefused, InvalidInput, ModelRefused, SetupError
from corelane.settings import Settings
from corelane.tasks.question_answering.squad import SquadQuestion, read_set
from corelane.tasks.question_answering.tune.asking import answer, observe
from corelane.tasks.question_answering.tune.cli.calibrate import calibrate_on, keep
from corelane.tasks.question_answering.tune.cli.reports import show_comparison
from corelane.tasks.question_answering.tune.comparison import ECE_RISEN, GateLimits, compare_versions
from corelane.tasks.question_answering.tune.evaluation import evaluate
from corelane.tasks.question_answering.tune.held_out import held_out, observations
from corelane.tasks.question_answering.wire import AnswerResult

#: The development part of a run, in its folder.
DEV_NAME = "dev.json"

#: A note about the figures of a version that was calibrated on the same questions.
CROSS_VALIDATED = "All figures are cross-validated: each fifth of the passages is judged by a calibration of the rest"


@dataclass(frozen=True, slots=True)
class Compiled:
    """A trained model after compiling: its version, and its figures on the development part.

    The figures and the comparison are cross-validated. ``ece`` is None if the version is not calibrated. ``comparison``
    is the comparison with the previous version, as plain data. ``failing`` names the limits that were exceeded. The
    last two are empty if there is no previous version. ``commands`` roll the version out.
    """

    id: str
    exact: float
    f1: float
    ece: float | None
    against: str | None
    comparison: Mapping[str, Any]
    failing: Sequence[str]
    commands: Sequence[str]


def finish(
    model: Path,
    run: Path,
    name: str,
    settings: Settings,
    began_with: str,
    against: str | None,
    limits: GateLimits,
    *,
    quiet: bool,
) -> Compiled:
    """Compile a trained model, calibrate it, compare it on the development part, and print that unless ``quiet``."""
    console = error_console()
    dev = run / DEV_NAME
    questions = read_set(dev).questions
    before = version_before(name, settings, began_with, against)
    artifact = build(str(model), name, settings)
    unseen = calibrate(artifact, dev, questions, model)
    results = unseen or answer(artifact, questions)
    total = evaluate(questions, results)
    ece = None if unseen is None else total.ece
    version = artifact.manifest.version_id
    said = "not calibrated" if ece is None else f"calibrated, ECE {ece:.3f}. {CROSS_VALIDATED}"
    console.print(f"{version}: EM {total.exact:.2f}, F1 {total.f1:.2f} on {dev}; {said}")
    old = None if before is None else before.manifest.version_id
    comparison: Mapping[str, Any] = {}
    failing: Sequence[str] = ()
    if before is not None and old != version:
        known = (str(old), answers_of(before, dev, questions))
        report = compare_versions(questions, (version, results), known, limits)
        comparison, failing = report.as_data(), report.failing
        if not quiet:
            show_comparison(report)
    commands = roll_out(version, old, dev)
    if not quiet and not failing:
        console.print("\nto roll it out:", *(f"  {line}" for line in commands), sep="\n")
    return Compiled(version, total.exact, total.f1, ece, old, comparison, failing, commands)


def refusal(found: Compiled) -> str:
    """Return why a version does not pass, and what to do if its scores are not probabilities."""
    said = f"{found.id} does not pass against {found.against}: {'; '.join(found.failing)}"
    if found.ece is None and any(each.startswith(ECE_RISEN) for each in found.failing):
        said += (
            ". It is not calibrated, so its scores are no probabilities: give it more questions to judge by (--dev, "
            "--set-aside), or allow the rise (--max-ece-rise 1)"
        )
    return said


def roll_out(version: str, old: str | None, dev: Path) -> list[str]:
    """Return the commands that make a running service use the version, first for a tenth of the questions."""
    name = version.partition("@")[0]
    if old is None or old == version:
        return [f"corelane models load {version}", f"corelane models alias {name} {version}"]
    return [
        f"corelane models load {version}",
        f"corelane eval {dev} --model {version} --against {old}",
        f"corelane models alias default {old}=90 {version}=10",
        f"corelane models alias default {version}",
        f"corelane models unload {old}",
    ]


def version_before(name: str, settings: Settings, began_with: str, against: str | None) -> Artifact | None:
    """Return the version to compare with: the named one, the name's newest, or what training began with; or None."""
    if against is not None:
        return find_artifact(settings.artifact_root, against, settings.target)
    with suppress(ArtifactRefused):
        return find_artifact(settings.artifact_root, name, settings.target)
    with suppress(ModelRefused):
        return build(began_with, model_name(began_with), settings)
    return None


def build(model: str, name: str, settings: Settings) -> Artifact:
    """Compile a model for this machine's CPU, with a progress bar."""
    with show_progress() as step:
        return compile_model(model, settings=settings, name=name, report=step)


def calibrate(
    artifact: Artifact, file: Path, questions: Sequence[SquadQuestion], model: Path
) -> list[AnswerResult] | None:
    """Calibrate a version on the development part, and return its cross-validated results there.

    The calibration is also written to the model's folder, so that compiling it again keeps the calibration. If the part
    is too small or one-sided, print that and return None. Raises SetupError for a folder that cannot be written.
    """
    seen = observe(artifact, questions)
    try:
        calibration = calibrate_on(artifact, file, observations(seen))
        results = held_out(seen)
    except InvalidInput as error:
        error_console().print(f"not calibrated: {error.detail}")
        return None
    keep(artifact, calibration)
    try:
        carry_calibration(artifact.path / CALIBRATION_NAME, model / SHIPPED_NAME)
    except OSError as error:
        raise SetupError(f"{model / SHIPPED_NAME} cannot be written: {error.strerror or error}") from None
    return results


def answers_of(artifact: Artifact, file: Path, questions: Sequence[SquadQuestion]) -> list[AnswerResult]:
    """Return a version's answers to a file's questions; cross-validated if it was calibrated on this file."""
    calibration = read_calibration(artifact.path, artifact.manifest.version)
    if calibration is not None and calibration.file_digest == digest_file(file):
        with suppress(InvalidInput):
            return held_out(observe(artifact, questions))
    return answer(artifact, questions)
