"""The items of the bench: made ones of every task, files, and what it says of wrong ones."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from corelane.domain.jobs import DEFAULT_TASK
from corelane.errors import InvalidInput, SetupError
from corelane.plugins.bench.items import make_items, read_items
from corelane.tasks.registry import TASKS
from tests.conftest import ROOT

LINE = {"id": "a", "question": "Who wrote it?", "context": "Ada wrote it."}

SQUAD = {
    "data": [
        {
            "paragraphs": [
                {
                    "context": "Ada wrote it.",
                    "qas": [
                        {"id": "1", "question": "Who wrote it?", "answers": [{"text": "Ada"}], "is_impossible": False},
                        {"id": "2", "question": "Who read it?", "answers": [], "is_impossible": True},
                    ],
                }
            ]
        }
    ]
}


@pytest.mark.parametrize("task", TASKS)
def test_items_are_made_of_every_task_and_are_the_same_each_time(task: str) -> None:
    found = make_items(task, 20, tokens=64)
    assert len(found.given) == 20
    for each in found.given:
        TASKS[task].item.model_validate(each.item)
    assert len({json.dumps(each.item) for each in found.given}) > 15
    assert found.given == make_items(task, 20, tokens=64).given


@pytest.mark.parametrize("task", ["text-classification", DEFAULT_TASK])
def test_made_items_have_nearly_the_tokens_that_were_asked_for_and_never_more(task: str) -> None:
    tokenizer = Tokenizer.from_file(str(ROOT / "models" / "qa-minilm" / "tokenizer.json"))
    for each in make_items(task, 50, tokens=128).given:
        texts: Any = [text for text in each.item.values() if isinstance(text, str)]
        assert 128 - 16 <= len(tokenizer.encode(*texts).ids) <= 128


def test_made_questions_have_an_answer_that_stands_in_their_passage() -> None:
    found = make_items(DEFAULT_TASK, 20, tokens=128)
    assert all(each.known[0] in each.item["context"] for each in found.given)
    assert found.options == {"no_answer": False}


def test_lines_are_read_with_their_known_answers(tmp_path: Path) -> None:
    lines = [{**LINE, "answers": ["Ada", "Ada L."]}, {**LINE, "answer": {"text": "Ada"}}, LINE]
    path = tmp_path / "lines.jsonl"
    path.write_text("\n\n".join(map(json.dumps, lines)))
    found = read_items(DEFAULT_TASK, path)
    item = {name: value for name, value in LINE.items() if name != "id"}
    assert [each.item for each in found.given] == [item] * 3
    assert [each.known for each in found.given] == [("Ada", "Ada L."), ("Ada",), ()]
    assert len(read_items(DEFAULT_TASK, path, count=2).given) == 2


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_squad_files_are_read_and_no_answer_is_right_where_there_is_none(pack: type, tmp_path: Path) -> None:
    path = tmp_path / "squad.json"
    path.write_bytes(pack(json.dumps(SQUAD).encode()))
    found = read_items(DEFAULT_TASK, path)
    assert [each.known for each in found.given] == [("Ada",), ("",)]
    assert found.options == {}


def test_a_file_of_one_line_is_read_as_that_line(tmp_path: Path) -> None:
    path = tmp_path / "one.jsonl"
    path.write_text('{"text": "A room.", "id": "x"}')
    found = read_items("text-classification", path)
    assert [each.item for each in found.given] == [{"text": "A room."}]
    assert found.options == {"long": "mean"}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"text": "A room."}\n{"texts": 1}', "line 2 of .* is no item of text-classification: write it as {"),
        ("[1]", "line 1 of "),
        ("no JSON", "line 1 of "),
        ("\n", "has no items: write one to a line, as {"),
    ],
)
def test_a_file_of_another_form_is_refused_with_an_example(content: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "items.jsonl"
    path.write_text(content)
    with pytest.raises(InvalidInput, match=said):
        read_items("text-classification", path)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "torn.gz").write_bytes(gzip.compress(b'{"text": "A room."}')[:-4])
    with pytest.raises(SetupError, match=r"torn\.gz cannot be read"):
        read_items("text-classification", tmp_path / "torn.gz")
    with pytest.raises(SetupError, match=r"none\.jsonl cannot be read: No such file"):
        read_items("text-classification", tmp_path / "none.jsonl")
