import gzip
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from compile.build import MOST_LOST, build
from compile.model.loading import load_model, quiet_transformers
from compile.model.reference import runner_of, wrap
from compile.model.source import find_source
from compile.tasks.evaluation import EvalSet
from compile.tasks.question_answering.evaluation import overlap, read_eval_set
from compile.verify import Disagreement, judge_f1
from corelane.artifacts.manifest import Artifact
from corelane.cli.app import make_cli
from corelane.engine.backends.protocol import Logits, WindowBatch
from corelane.engine.buckets import Bucket
from corelane.errors import CompileFailed, InvalidInput
from corelane.settings import Settings
from corelane.tasks.question_answering.engine.task import QuestionQuery as Query
from tests.tasks.tiny import save_tiny

LADDER = [Bucket(length=32, rows=2), Bucket(length=64, rows=2)]

TEXT = "ada wrote the first program . the river was red ."


@pytest.mark.parametrize(
    ("found", "expected", "f1"),
    [((3, 5), (3, 5), 1.0), ((3, 4), (5, 6), 0.0), (None, (1, 1), 0.0), ((2, 5), (4, 5), 2 / 3)],
)
def test_overlap_is_f1_over_tokens(found: tuple[int, int] | None, expected: tuple[int, int], f1: float) -> None:
    assert overlap(found, expected) == pytest.approx(f1)


def test_eager_network_loses_nothing_to_itself(tiny_model: Path) -> None:
    with quiet_transformers():
        model = load_model(find_source(str(tiny_model)))
    run = runner_of(wrap(model))
    loss = model.task.measure_loss(model.tokenizer, model.spec, LADDER, run, run, None)
    assert loss.points == 0
    assert loss.items > 0
    assert loss.label == "samples"


def test_wrong_answers_cost_the_points_the_eager_network_had(tiny_model: Path) -> None:
    """The references are the eager network's own answers; the other network gives other words."""
    with quiet_transformers():
        model = load_model(find_source(str(tiny_model)))
    run = runner_of(wrap(model))

    def turned(batch: WindowBatch) -> Logits:
        right = run(batch)
        return (-right[0], -right[1])

    queries = [Query("who", TEXT), Query("what", TEXT)]
    plain = EvalSet("plain", queries, [["-"], ["-"]], lambda given, references: float(given in references))
    texts: list[str] = []

    def remember(given: str, _: object) -> float:
        texts.append(given)
        return 0.0

    model.task.measure_loss(
        model.tokenizer, model.spec, LADDER, run, run, EvalSet("x", queries, [["-"], ["-"]], remember)
    )
    assert texts
    assert all(text in TEXT for text in texts)
    known = EvalSet("known", queries, [[texts[0]], [texts[1]]], plain.text_f1)
    assert model.task.measure_loss(model.tokenizer, model.spec, LADDER, run, run, known).points == 0
    loss = model.task.measure_loss(model.tokenizer, model.spec, LADDER, run, turned, known)
    assert loss.points > 0
    assert loss[1:] == (2, "known")


def test_int8_that_auto_chose_is_judged_by_f1() -> None:
    judge_f1(MOST_LOST, MOST_LOST, "int8")
    for points in (MOST_LOST + 0.01, float("nan")):
        with pytest.raises(Disagreement, match=r"points of F1.*--dtype fp32"):
            judge_f1(points, MOST_LOST, "int8")


def test_manifest_records_the_f1_loss_and_its_questions(tiny_model: Path, tmp_path: Path) -> None:
    path = write_squad(tmp_path / "mine.json.gz", [("who wrote it", ["ada"]), ("why", [])])
    eval_set = read_eval_set(path)
    assert len(eval_set.queries) == 1
    assert eval_set.text_f1("the Ada", eval_set.references[0]) == 1
    settings = Settings(data_dir=tmp_path)
    artifact = build(str(tiny_model), settings=settings, buckets="2x32", dtype="fp32", eval_set=eval_set)
    manifest = artifact.manifest
    assert (manifest.f1_loss, manifest.f1_questions, manifest.f1_source) == (0, 1, "mine.json.gz")


def test_manifest_without_questions_records_the_loss_on_the_samples(tiny_artifact: Artifact) -> None:
    assert tiny_artifact.manifest.f1_source == "samples"
    assert tiny_artifact.manifest.f1_questions > 0


def test_questions_that_cannot_be_asked_are_refused(tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no question with an answer"):
        read_eval_set(write_squad(tmp_path / "none.json.gz", [("why", [])]))
    path = write_squad(tmp_path / "long.json.gz", [("why " * 100, ["ada"])])
    with pytest.raises(CompileFailed, match=r"no question of long\.json\.gz fits"):
        build(
            str(tiny_model),
            settings=Settings(data_dir=tmp_path),
            buckets="2x32",
            dtype="fp32",
            eval_set=read_eval_set(path),
        )
    told = CliRunner().invoke(make_cli(), ["compile", str(tiny_model), "--questions", str(tmp_path / "absent.json")])
    assert told.exit_code != 0
    assert "absent.json" in told.output


def test_questions_are_refused_for_a_model_of_another_task(tmp_path: Path) -> None:
    path = write_squad(tmp_path / "mine.json.gz", [("who wrote it", ["ada"])])
    save_tiny("bert", "AutoModel", folder := tmp_path / "embedder")
    with pytest.raises(CompileFailed, match=r"F1 is not measured for feature-extraction: leave mine\.json\.gz out"):
        build(str(folder), settings=Settings(data_dir=tmp_path), eval_set=read_eval_set(path))


def write_squad(path: Path, entries: list[tuple[str, list[str]]]) -> Path:
    asked = [
        {"id": str(number), "question": question, "answers": [{"text": text, "answer_start": 0} for text in texts]}
        for number, (question, texts) in enumerate(entries)
    ]
    document = {"data": [{"paragraphs": [{"context": TEXT, "qas": asked}]}]}
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    return path
