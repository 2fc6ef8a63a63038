"""``corelane calibrate``, on a compiled random model and questions whose answers are made up from what it says."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner, Result

from corelane.artifacts.calibration import CALIBRATION_NAME, read_calibration
from corelane.artifacts.manifest import Artifact, read_artifact
from corelane.cli.app import make_cli
from corelane.engine.runner import Runner, open_backend
from corelane.tasks.question_answering.engine.task import QuestionQuery as Query
from corelane.tasks.question_answering.options import AnswerOptions
from corelane.tasks.question_answering.quality.evaluation import Metrics
from corelane.tasks.question_answering.quality.fitting import deal, observe
from corelane.tasks.question_answering.squad import SquadQuestion
from tests.tools.artifacts import WORDS

QUESTIONS = ("who wrote first", "where is the tower", "what city", "when")


def contexts() -> Iterator[str]:
    for n in range(60):
        yield " ".join(WORDS[(n * 7 + i * (n % 5 + 1)) % len(WORDS)] for i in range(12))


@pytest.fixture(scope="module")
def squad(tiny_artifact: Artifact) -> dict[str, Any]:
    """Write a file in which large margins mean answerable and large shares mean right, with some noise."""
    questions = [SquadQuestion("q", question, context, ()) for context in contexts() for question in QUESTIONS]
    seen = [best for _, best in observe(tiny_artifact, questions) if best is not None]
    assert len(seen) == len(questions)
    margin = sorted(best.margin for best in seen)[len(seen) // 3]
    shares = sorted(best.log_share for best in seen if best.margin > margin)
    share = shares[len(shares) // 2]
    paragraphs = []
    for number, context in enumerate(contexts()):
        qas = []
        for i, question in enumerate(QUESTIONS):
            at = number * len(QUESTIONS) + i
            is_odd = at % 9 == 0
            text = context[seen[at].start : seen[at].end] if (seen[at].log_share > share) != is_odd else "zebra"
            answers = [{"text": text, "answer_start": 0}] if (seen[at].margin > margin) != is_odd else []
            qas.append({"id": str(at), "question": question, "answers": answers, "is_impossible": not answers})
        paragraphs.append({"context": context, "qas": qas})
    return {"data": [{"title": "t", "paragraphs": paragraphs}]}


@pytest.fixture
def home(tiny_artifact: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a copied artifact, which the settings lead to."""
    folder = tmp_path / "artifacts" / "tiny-qa" / tiny_artifact.manifest.version / "cpu"
    shutil.copytree(tiny_artifact.path, folder)
    monkeypatch.setenv("CORELANE_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("CORELANE_MODEL", "tiny-qa")
    return folder


def run(*arguments: str) -> Result:
    return CliRunner().invoke(make_cli(), ["calibrate", *arguments])


def write(path: Path, document: dict[str, Any]) -> str:
    path.write_bytes(orjson.dumps(document))
    return str(path)


def test_calibration_is_fitted_shown_and_kept_beside_the_artifact(
    home: Path, squad: dict[str, Any], tmp_path: Path
) -> None:
    manifest = (home / "manifest.json").read_bytes()
    (home / CALIBRATION_NAME).write_text("damaged")
    done = run(write(tmp_path / "made.json", squad))
    assert done.exit_code == 0, done.output
    assert "calibrated on 240 questions" in done.stdout
    assert "ECE" in done.stdout
    assert "min_precision" in done.stdout
    artifact = read_artifact(home)
    calibration = read_calibration(artifact.path, artifact.manifest.version)
    assert calibration is not None
    assert (calibration.file, calibration.questions, calibration.dtype) == ("made.json", 240, "fp32")
    assert (home / "manifest.json").read_bytes() == manifest
    runner = Runner.open(open_backend("cpu"), artifact)
    [result] = runner.results_of([Query("who", next(contexts()), AnswerOptions(min_precision=0.01))])
    assert result["status"] == "succeeded"


def test_what_was_fitted_is_told_to_programs(home: Path, squad: dict[str, Any], tmp_path: Path) -> None:
    done = run(write(tmp_path / "made.json", squad), "--json")
    [told] = [orjson.loads(line) for line in done.stdout.splitlines()]
    assert (told["id"].partition("@")[0], told["questions"]) == ("tiny-qa", 240)
    assert (told["path"], set(told["judged"])) == (
        str(home / CALIBRATION_NAME),
        {"precisions", *Metrics.__dataclass_fields__},
    )
    kept = orjson.loads((home / CALIBRATION_NAME).read_bytes())
    assert told["no_answer_threshold"] == kept["no_answer_threshold"]
    assert [each["min_precision"] for each in told["judged"]["precisions"]] == [0.5, 0.6, 0.7, 0.8, 0.9]


def test_compiling_again_keeps_the_calibration(
    home: Path, tiny_model: Path, squad: dict[str, Any], tmp_path: Path
) -> None:
    from compile.build import build
    from corelane.settings import Settings

    assert run(write(tmp_path / "made.json", squad), "--model", "tiny-qa").exit_code == 0
    before = read_calibration(home, read_artifact(home).manifest.version)
    again = build(str(tiny_model), settings=Settings(data_dir=tmp_path), buckets="2x48", dtype="bf16")
    assert again.path == home
    assert read_calibration(again.path, again.manifest.version) == before


def test_file_that_is_too_small_or_not_marked_is_refused_and_nothing_kept(
    home: Path, squad: dict[str, Any], tmp_path: Path
) -> None:
    few = {"data": [article | {"paragraphs": article["paragraphs"][:10]} for article in squad["data"]]}
    done = run(write(tmp_path / "made.json", few))
    assert done.exit_code == 1
    assert "at least 30 are needed" in done.stderr.replace("\n", " ")
    assert not (home / CALIBRATION_NAME).exists()


def test_folds_hold_whole_passages_and_the_same_mix() -> None:
    questions = [SquadQuestion(str(n), "q", str(n // 4), ("a",) if n < 120 else ()) for n in range(240)]
    folds = deal([(question, None) for question in questions])
    assert sorted(place for fold in folds for place in fold) == list(range(240))
    passages = [{questions[place].context for place in fold} for fold in folds]
    assert not set.intersection(*passages)
    assert [sum(len(questions[place].gold) for place in fold) for fold in folds] == [24] * 5
    assert deal([(questions[0], None)] * 2) == [[0, 1]]
