"""``corelane eval``."""

import gzip
from pathlib import Path
from typing import Any

import orjson
import pytest
from pytest_httpserver import HTTPServer
from typer.testing import CliRunner, Result

from corelane.cli.commands import CommandGroup
from corelane.tasks.question_answering.quality.evaluate import evaluate
from tests.corelane.stand_in import StandIn


@pytest.fixture
def service(httpserver: HTTPServer) -> StandIn:
    return StandIn(httpserver)


def run(*arguments: str) -> Result:
    app = CommandGroup()
    app.command("eval")(evaluate)
    return CliRunner().invoke(app, arguments)


def write(path: Path, data: list[dict[str, Any]]) -> str:
    content = orjson.dumps({"data": data})
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return str(path)


def squad(*questions: tuple[str, list[str]], marked: bool = False) -> list[dict[str, Any]]:
    qas = [
        {
            "id": str(number),
            "question": question,
            "answers": [{"text": text, "answer_start": 0} for text in texts],
            **({"is_impossible": not texts} if marked else {}),
        }
        for number, (question, texts) in enumerate(questions)
    ]
    return [{"title": "t", "paragraphs": [{"context": "Ada wrote it.", "qas": qas}]}]


def test_a_file_without_unanswerable_questions_is_always_answered(service: StandIn, tmp_path: Path) -> None:
    path = write(tmp_path / "v1.json", squad(("Who?", ["Ada", "Lovelace"]), ("What?", ["it"])))
    done = run(path, "--json", "--url", service.url)
    report = orjson.loads(done.stdout)
    assert done.exit_code == 0
    assert (report["questions"], report["exact"], report["offsets_right"]) == (2, 50, 1)
    assert service.bodies[0]["options"] == {"no_answer": False}


def test_confidence_is_compared_with_how_often_responses_are_right(service: StandIn, tmp_path: Path) -> None:
    questions = [("Who?", ["Ada"]), ("When?", ["never"]), ("Nothing?", []), ("Nothing at all?", ["it"])]
    path = write(tmp_path / "v2.json", squad(*questions, marked=True))
    done = run(path, "--json", "--url", service.url, "--min-precision", "0.4")
    report = orjson.loads(done.stdout)
    # Two answers of score 0.5, one right; two nulls of score 0.75, one right: their bins are 0 and 0.25 off.
    assert (report["answered"], report["precision"], report["ece"]) == (0.5, 0.5, pytest.approx(0.125))
    assert service.bodies[0]["options"] == {"no_answer": True, "min_precision": 0.4}
    shown = run(path, "--url", service.url).stdout
    assert "answers 50.0%, 50.0% of them exactly right" in shown
    assert "0.125" in shown


def test_unanswerable_questions_are_scored_on_their_own(service: StandIn, tmp_path: Path) -> None:
    questions = [("Who?", ["Ada"]), ("Nothing?", []), ("Where?", []), ("Nothing else?", [])]
    path = write(tmp_path / "v2.json.gz", squad(*questions, marked=True))
    report = orjson.loads(run(path, "--json", "--url", service.url, "--threshold", "-1.5").stdout)
    assert report["unanswerable"] == {"questions": 3, "accuracy": pytest.approx(200 / 3)}
    assert report["answerable"]["exact"] == 100
    assert report["exact"] == 75
    assert service.bodies[0]["options"] == {"no_answer": True, "no_answer_threshold": -1.5}
    done = run(path, "--url", service.url)
    assert done.exit_code == 0
    right = f"offsets {report['offsets_given']} of {report['offsets_given']} right"
    for part in ("v2", "100.0", "66.7", "questions/s", right):
        assert part in done.stdout
    nothing = write(tmp_path / "nothing.json", squad(("Nothing?", []), marked=True))
    assert orjson.loads(run(nothing, "--json", "--url", service.url).stdout)["precision"] is None
    assert "answers 0.0%" in [line.strip() for line in run(nothing, "--url", service.url).stdout.splitlines()]


def test_languages_are_reported_one_by_one(service: StandIn, tmp_path: Path) -> None:
    entries = [
        {"lang": lang, "id": lang, "question": "?", "context": context, "answer": answer, "answer_start": 0}
        for lang, context, answer in (("de", "Zoë schrieb es.", "Zoë"), ("en", "Ada wrote it.", "it"))
    ]
    path = write(tmp_path / "x.json", entries)
    report = orjson.loads(run(path, "--json", "--url", service.url).stdout)
    assert {lang: scores["exact"] for lang, scores in report["languages"].items()} == {"de": 100, "en": 0}
    shown = run(path, "--url", service.url).stdout
    assert [line.split()[:3] for line in shown.splitlines()][4:6] == [["de", "1", "100.0"], ["en", "1", "0.0"]]


def test_an_answer_that_is_not_at_its_offsets_ends_in_exit_code_1(service: StandIn, tmp_path: Path) -> None:
    service.wrong_offsets = True
    done = run(write(tmp_path / "v1.json", squad(("Nothing?", ["Ada"]), ("Who?", ["Ada"]))), "--url", service.url)
    assert done.exit_code == 1
    assert "the first is of question 1" in done.stderr


def test_failed_questions_are_counted_and_the_first_is_named(service: StandIn, tmp_path: Path) -> None:
    done = run(write(tmp_path / "v1.json", squad(("Who?", ["Ada"]), ("Broken?", ["Ada"]))), "--url", service.url)
    assert done.exit_code == 0
    assert "1 failed; first, question 1: it broke" in done.stderr


BAD = (b"{", b"[]", b"\x1f\x8b", gzip.compress(b"x" * 99, mtime=0)[:-9], b'{"data": []}', b'{"data": [{"qas": []}]}')


@pytest.mark.parametrize("content", BAD)
def test_a_file_that_cannot_be_read_is_named_before_anything_is_asked(
    service: StandIn, tmp_path: Path, content: bytes
) -> None:
    good, bad = write(tmp_path / "good.json", squad(("Who?", ["Ada"]))), tmp_path / "bad.json"
    bad.write_bytes(content)
    done = run(good, str(bad), "--url", service.url)
    assert (done.exit_code, "bad.json" in done.stderr, service.bodies) == (1, True, [])
    assert "Traceback" not in done.output


@pytest.mark.parametrize(
    ("files", "options", "said"),
    [
        (1, ("--threshold", "1", "--min-precision", "0.5"), "leave --threshold"),
        (2, ("--against", "other"), "give one"),
        (2, ("--save", "other"), "give one"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    service: StandIn, tmp_path: Path, files: int, options: tuple[str, ...], said: str
) -> None:
    path = write(tmp_path / "v1.json", squad(("Who?", ["Ada"])))
    done = run(*[path] * files, "--url", service.url, *options)
    assert (done.exit_code, said in done.stderr, service.bodies) == (1, True, [])


def test_answers_that_were_kept_are_a_baseline(service: StandIn, tmp_path: Path) -> None:
    path = write(tmp_path / "v2.json", squad(("Who?", ["Ada"]), ("Nothing?", []), ("What?", ["it"]), marked=True))
    kept = tmp_path / "answers.jsonl"
    assert run(path, "--url", service.url, "--save", str(kept)).exit_code == 0
    same = run(path, "--json", "--url", service.url, "--against", str(kept))
    report = orjson.loads(same.stdout)
    assert same.exit_code == 0
    assert (report["passes"], report["comparison"]["agreement"], report["changed"]) == (True, 1, [])
    assert run(path, "--limit", "2", "--url", service.url, "--against", str(kept)).exit_code == 1

    lines = kept.read_text().replace('"text":"Ada"', '"text":"wrote"').replace('"start":0,"end":3', '"start":4,"end":9')
    kept.write_text(lines)
    better = run(path, "--url", service.url, "--against", str(kept))
    assert better.exit_code == 0
    assert "better: Who?" in better.stdout
    strict = run(path, "--url", service.url, "--against", str(kept), "--min-agreement", "0.9")
    assert strict.exit_code == 1
    assert "agreement 0.333, limit 0.9" in strict.stderr.replace("\n", " ")


def test_another_version_is_asked_the_same(service: StandIn, tmp_path: Path) -> None:
    path = write(tmp_path / "v1.json", squad(("Who?", ["Ada"]), ("What?", ["it"])))
    done = run(path, "--url", service.url, "--model", "new", "--against", "old")
    assert done.exit_code == 0
    assert [body["model"] for body in service.bodies] == ["new", "old"]
    assert service.bodies[0]["items"] == service.bodies[1]["items"]
    assert "new against old" in done.stdout
    assert "both are" in run(path, "--url", service.url, "--against", "default").stderr


def test_several_files_make_one_table_with_their_sum(service: StandIn, tmp_path: Path) -> None:
    one = write(tmp_path / "v1.json", squad(("Who?", ["Ada"]), ("What?", ["it"])))
    two = write(tmp_path / "v2.json.gz", squad(("Who?", ["Ada"]), ("Nothing?", []), ("What?", ["it"]), marked=True))
    done = run(one, two, "--json", "--url", service.url)
    report = orjson.loads(done.stdout)
    assert done.exit_code == 0
    assert [each["file"] for each in report["files"]] == ["v1.json", "v2.json.gz"]
    assert [each["questions"] for each in report["files"]] == [2, 3]
    assert [each["no_answer_accuracy"] for each in report["files"]] == [None, 100]
    assert report["all"]["questions"] == 5
    assert report["all"]["exact"] == pytest.approx(100 * 3 / 5)
    assert [point["min_precision"] for point in report["all"]["coverage"]] == [0.8, 0.9]
    assert [body["options"]["no_answer"] for body in service.bodies] == [False, True]

    shown = run(one, two, "--limit", "1", "--url", service.url).stdout
    assert [line.split()[0] for line in shown.splitlines() if line.strip()][2:5] == ["v1", "v2", "all"]
    assert "≥ 0.9" in shown
