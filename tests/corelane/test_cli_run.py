"""``corelane run``: an item or lines of any task, against a real service whose engine is null."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner, Result

from corelane.cli.commands import CommandGroup
from corelane.cli.run import read_fields, run, shown_field
from corelane.domain.jobs import DEFAULT_TASK
from corelane.errors import InvalidInput
from corelane.tasks.registry import TASKS
from tests.corelane.stand_in import StandIn

#: A result of each task, and how it is shown.
SHOWN: list[tuple[str, Mapping[str, Any], str]] = [
    ("question-answering", {"answer": {"text": "Ada", "start": 0, "end": 3, "score": 0.5}}, "Ada (0.500)"),
    ("question-answering", {}, "no answer"),
    ("text-classification", {"labels": [{"label": "GOOD", "score": 0.75}]}, "GOOD 0.750"),
    ("text-classification", {"labels": [{"label": f"L{n}", "score": 0.1} for n in range(7)]}, "2 more"),
    ("zero-shot-classification", {"labels": [{"label": "price", "score": 0.75}]}, "price 0.750"),
    (
        "token-classification",
        {"entities": [{"label": "PER", "start": 0, "end": 3, "text": "Ada", "score": 0.5}]},
        "Ada [PER 0-3 0.500]",
    ),
    ("token-classification", {}, "no entities"),
    ("feature-extraction", {"embedding": [0.5] * 9, "tokens": 3}, "9 numbers: 0.5000 0.5000 0.5000 0.5000 …"),
    ("feature-extraction", {"embedding": "AAAAPw==", "tokens": 3}, "AAAAPw=="),
    ("text-ranking", {"ranking": [{"index": 1, "score": 0.5}, {"index": 0, "score": 0.25}]}, "1 (0.500), 0 (0.250)"),
    ("text-ranking", {"ranking": [{"index": 1, "score": 0.5, "text": "It is."}]}, "1 'It is.' (0.500)"),
]


def model_of(task: str) -> str:
    return "null@0" if task == DEFAULT_TASK else f"{task}@1"


def call(*arguments: object) -> Result:
    app = CommandGroup()
    app.command()(run)
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def write_items(path: Path, task: str, count: int) -> Path:
    lines = (orjson.dumps({"id": f"i{n}", **TASKS[task].example}) for n in range(count))
    path.write_bytes(b"\n".join(lines))
    return path


@pytest.mark.parametrize(("task", "found", "line"), SHOWN)
def test_a_result_is_shown_in_a_line(task: str, found: Mapping[str, Any], line: str) -> None:
    assert line in TASKS[task].line({**TASKS[task].nothing, **found})


@pytest.mark.parametrize("task", TASKS)
def test_one_item_is_given_by_its_fields(null_service: str, task: str) -> None:
    fields = [f"{name}:={orjson.dumps(value).decode()}" for name, value in TASKS[task].example.items()]
    done = call(model_of(task), *fields, "--url", null_service)
    assert (done.exit_code, done.stdout) == (0, TASKS[task].line(TASKS[task].nothing) + "\n")
    printed = call(model_of(task), *fields, "--url", null_service, "--json")
    assert orjson.loads(printed.stdout).items() >= {"index": 0, "status": "succeeded", **TASKS[task].nothing}.items()


def test_one_item_is_given_as_json_or_as_a_text_if_that_is_all_of_it(null_service: str) -> None:
    assert call("text-classification@1", "a is b or not", "--url", null_service, "-O", "top_k=1").exit_code == 0
    assert call("text-classification@1", '{"text": "a"}', "--url", null_service).exit_code == 0
    refused = call("text-ranking@1", "Who?", "--url", null_service)
    assert (refused.exit_code, "query='How tall is the tower?' texts:='[" in refused.stderr) == (1, True)
    assert call("text-classification@1", "Nice.", "--url", null_service, "-O", "top_k=none").exit_code == 1


@pytest.mark.parametrize("task", TASKS)
def test_lines_are_resumed_in_their_output(null_service: str, task: str, tmp_path: Path) -> None:
    items, output = write_items(tmp_path / "items.jsonl", task, 5), tmp_path / "results.jsonl"
    asked = (model_of(task), items, "-o", output, "--url", null_service)
    done = call(*asked)
    assert done.exit_code == 0, done.stderr
    whole = output.read_bytes()
    results = [orjson.loads(line) for line in whole.splitlines()]
    assert [(each["index"], each["id"], each["model"]) for each in results] == [
        (n, f"i{n}", model_of(task)) for n in range(5)
    ]
    output.write_bytes(whole[: len(whole) // 2])
    resumed = call(*asked)
    assert (resumed.exit_code, output.read_bytes(), "resuming after 2 lines" in resumed.stderr) == (0, whole, True)
    other = call(*asked, "-O", "long=mean")
    assert (other.exit_code, "--long was not given, now it is mean" in other.stderr) == (1, True)


def test_lines_are_shown_one_by_one_and_a_bad_one_fails_in_its_place(null_service: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "corelane", "run", "text-classification@1", "--url", null_service],
        input='{"id": "a", "text": "Nice."}\n\n{"text": " "}\n{"text": "Ada."}\n',
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.stdout == "a: no labels\n2: failed: line 3: text: must hold more than white space\n3: no labels\n"
    assert (done.returncode, "3 lines: 2 answered, 1 failed" in done.stderr) == (2, True), done.stderr


def test_lines_and_items_of_other_commands_are_told_apart(null_service: str, service: StandIn, tmp_path: Path) -> None:
    from tests.corelane.test_cli_batch import run as batch

    items = write_items(tmp_path / "items.jsonl", "text-classification", 1)
    code, said = batch(items, "--url", service.url)
    assert (code, "corelane run MODEL FILE" in said) == (1, True)
    missing = call("text-classification@1", tmp_path / "no.jsonl", "--url", null_service)
    assert (missing.exit_code, "there is no file" in missing.stderr) == (1, True)
    alone = call("text-classification@1", "Nice.", "-o", tmp_path / "x", "--url", null_service)
    assert (alone.exit_code, "--output is for results of lines" in alone.stderr) == (1, True)
    unknown = call("no-such-model", "Nice.", "--url", null_service)
    assert (unknown.exit_code, "there is no model" in unknown.stderr) == (1, True)


def test_fields_are_texts_lists_or_json() -> None:
    given = ["text=3", "labels=a", "labels=b=c", 'more:={"x": [1]}']
    assert read_fields(given, as_json=False) == {"text": "3", "labels": ["a", "b=c"], "more": {"x": [1]}}
    assert read_fields(["top_k=3", "long=mean", "multi_label=true"], as_json=True) == {
        "top_k": 3,
        "long": "mean",
        "multi_label": True,
    }
    for wrong in ("top_k", "top_k:=three"):
        with pytest.raises(InvalidInput, match="top_k"):
            read_fields([wrong], as_json=True)
    assert shown_field("texts", ["a"]) == "texts:='[\"a\"]'"
