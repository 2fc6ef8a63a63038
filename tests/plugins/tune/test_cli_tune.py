"""``corelane tune`` and ``corelane distil`` on a tiny network, from questions to the commands that roll it out."""

import json
import os
import shutil
import signal
import threading
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from corelane.artifacts.calibration import CALIBRATION_NAME, SHIPPED_NAME
from corelane.artifacts.manifest import Artifact
from corelane.cli.app import make_cli
from corelane.tasks.question_answering.tune.cli.tuned import Compiled, refusal
from corelane.tasks.question_answering.tune.comparison import ECE_RISEN
from corelane.tasks.question_answering.tune.training.checkpoints import PATTERN
from corelane.tasks.question_answering.tune.training.loop import CHECKPOINTS
from tests.compile.tiny_models import save_tiny_roberta
from tests.plugins.tune.training.made import make_document, write_document
from tests.tools.waiting import eventually

#: Enough for a tiny network to learn where a tower is.
LEARN = ["--epochs", "3", "--learning-rate", "3e-3", "--average", "0.9", "--batch-tokens", "400", "--threads", "1"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CORELANE_DATA_DIR", str(tmp_path / "data"))
    return tmp_path


@pytest.fixture
def files(home: Path) -> tuple[str, str]:
    """Write questions to learn from, and others to judge by."""
    learn = write_document(home / "learn.json", make_document(articles=12))
    dev = write_document(home / "dev.json", make_document(articles=12, seed=9))
    for article in (document := json.loads(dev.read_text()))["data"]:
        article["title"] += " of others"
    write_document(dev, document)
    return str(learn), str(dev)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(make_cli(), list(arguments), catch_exceptions=False)


def test_a_tuned_model_is_compiled_and_compared_with_the_version_before(
    home: Path, files: tuple[str, str], tiny_model: Path, tiny_artifact: Artifact
) -> None:
    learn, dev = files
    before = tiny_artifact.manifest
    shutil.copytree(tiny_artifact.path, home / "data" / "artifacts" / before.name / before.version / "cpu")
    # What is not calibrated may be less sure of itself.
    result = run("tune", str(tiny_model), learn, "--dev", dev, *LEARN, "--max-ece-rise", "1", "--json")
    assert result.exit_code == 0, result.stderr
    told = json.loads(result.stdout)
    assert told["id"].startswith("tiny-qa@")
    assert told["against"] == before.version_id
    assert told["comparison"]["new"] == told["id"]
    assert told["comparison"]["comparison"]["f1"]["by"] > 5
    assert told["commands"][0] == f"corelane models load {told['id']}"
    assert told["run"] == str(home / "data" / "tune" / "tiny-qa")
    assert "tokens/s" in result.stderr
    artifact = home / "data" / "artifacts" / "tiny-qa" / told["id"].partition("@")[2] / "cpu"
    assert artifact.is_dir()
    shipped = Path(told["model"]) / SHIPPED_NAME
    assert (artifact / CALIBRATION_NAME).is_file() == shipped.is_file() == (told["ece"] is not None)


@pytest.mark.parametrize(
    ("ece", "failing", "advised"),
    [
        (None, [f"{ECE_RISEN} 0.2, limit 0.03"], True),
        (None, ["F1 lost 2, limit 1"], False),
        (0.1, [f"{ECE_RISEN} 1"], False),
    ],
)
def test_scores_that_rise_without_a_calibration_are_explained(
    ece: float | None, failing: list[str], advised: bool
) -> None:
    said = refusal(Compiled("qa@new", 50.0, 60.0, ece, "qa@old", {}, failing, []))
    assert said.startswith(f"qa@new does not pass against qa@old: {failing[0]}")
    assert ("--max-ece-rise 1" in said) == advised


def test_a_student_learns_from_teachers_that_are_asked_once(
    home: Path, files: tuple[str, str], tiny_model: Path
) -> None:
    learn, dev = files
    for seed in ("1", "2"):
        options = [*LEARN, "--dev", dev, "--seed", seed, "--run", str(home / seed), "--no-compile"]
        assert run("tune", str(tiny_model), learn, *options).exit_code == 0
    teachers = [str(home / "1" / "model"), f"{home / '2' / 'model'}=2"]
    student = ["distil", *teachers, "--into", str(tiny_model), "--questions", learn, "--dev", dev]
    student += [*LEARN, "--negatives", "0.3", "--run", str(home / "student"), "--no-compile"]
    result = run(*student)
    assert result.exit_code == 0, result.output
    assert "teacher 2 of 2" in result.stderr
    entries = [json.loads(line) for line in (home / "student" / "log.jsonl").read_text().splitlines()]
    losses = [each["loss"] for each in entries if "loss" in each]
    assert sum(losses[-5:]) < 0.8 * sum(losses[:5])
    again = run(*student)
    assert (again.exit_code, "teacher" in again.stderr) == (0, False)


def test_a_teacher_of_other_tokens_is_refused(home: Path, files: tuple[str, str], tiny_model: Path) -> None:
    learn, dev = files
    other = save_tiny_roberta(home / "other")
    result = run("distil", str(other), "--into", str(tiny_model), "--questions", learn, "--dev", dev, *LEARN)
    assert result.exit_code == 1
    assert "reads other tokens than the student" in result.stderr


def test_a_file_with_wrong_offsets_is_refused_before_anything_is_kept(
    home: Path, files: tuple[str, str], tiny_model: Path
) -> None:
    document = json.loads(Path(files[0]).read_text())
    document["data"][0]["paragraphs"][0]["qas"][0]["answers"][0]["answer_start"] += 1
    wrong = write_document(home / "wrong.json", document)
    result = run("tune", str(tiny_model), str(wrong), *LEARN)
    assert result.exit_code == 1
    assert "1 of the 144 questions of wrong.json cannot be learnt from:" in result.stderr
    assert "line 1" in result.stderr
    assert not (home / "data").exists()


def test_a_signal_ends_a_run_after_a_checkpoint(home: Path, files: tuple[str, str], tiny_model: Path) -> None:
    learn, dev = files
    folder = home / "run"
    ended = threading.Thread(target=end_when_begun, args=(folder / "log.jsonl",))
    ended.start()
    argv = ["tune", str(tiny_model), learn, "--dev", dev, "--no-compile", "--run", str(folder), *LEARN]
    result = run(*argv, "--epochs", "150")
    ended.join()
    assert result.exit_code == 130, result.output
    assert "the same command goes on" in result.stderr
    assert len(list((folder / CHECKPOINTS).glob(PATTERN))) >= 1


def end_when_begun(log: Path) -> None:
    """Send this process SIGTERM once a step stands in the log: from then on the command waits for it."""
    eventually(lambda: log.exists() and log.stat().st_size > 0)
    os.kill(os.getpid(), signal.SIGTERM)
