import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from corelane.errors import InvalidInput, SetupError
from corelane.tasks.question_answering.tune.training.examples import (
    MOST_LISTED,
    Example,
    make_example,
    read_examples,
    split_examples,
)
from tests.plugins.tune.training.made import make_document, write_document

PASSAGE = "The tower is in Paris. It is 330 metres tall."


def entry(**changes: Any) -> dict[str, Any]:
    answer = {"text": "Paris", "answer_start": 16}
    return {"id": "a", "question": "Where is it?", "context": PASSAGE, "answers": [answer]} | changes


def test_files_are_read_in_squads_layout_gzipped_or_not(tmp_path: Path) -> None:
    path = write_document(tmp_path / "q.json", make_document(articles=2))
    examples = read_examples(path)
    assert len(examples) == 24
    assert {each.title for each in examples} == {"article 0", "article 1"}
    assert sum(not each.answers for each in examples) == 8
    packed = tmp_path / "q.json.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert read_examples(packed) == examples


@pytest.mark.parametrize(
    "changes",
    [
        {"answers": [{"text": "Paris", "answer_start": 16}]},
        {"answers": {"text": ["Paris"], "answer_start": [16]}},
        {"answers": None, "answer": "Paris", "answer_start": 16},
        {"answers": [{"text": " Paris", "answer_start": 15}, {"text": "Paris", "answer_start": 16}]},
    ],
    ids=["squad", "datasets", "flat", "white space and a double"],
)
def test_lines_give_answers_in_the_usual_ways(tmp_path: Path, changes: dict[str, Any]) -> None:
    line = {name: value for name, value in entry(**changes).items() if value is not None}
    path = tmp_path / "q.jsonl"
    path.write_text(f"\n{json.dumps(line)}\n", encoding="utf-8")
    [example] = read_examples(path)
    assert example.gold == ("Paris",)


def test_an_empty_answer_means_unanswerable() -> None:
    assert make_example(entry(answers=[]), "a").answers == ()
    assert make_example(entry(answers={"text": [], "answer_start": []}), "a").answers == ()


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"answers": [{"text": "Paris", "answer_start": 15}]}, "not at 15, where ' Pari' stands; it is at 16"),
        ({"answers": [{"text": "London", "answer_start": 0}]}, "the passage does not have it"),
        ({"answers": [{"text": "Paris", "answer_start": -29}]}, "not at -29"),
        ({"answers": [{"text": "Paris", "answer_start": True}]}, "no answer_start"),
        ({"answers": [{"text": " ", "answer_start": 3}]}, "an answer has no text"),
        ({"answers": ["Paris"]}, "not an object"),
        ({"answers": "Paris"}, "no `answers`"),
        ({"answers": {"text": ["Paris"]}}, "lists of the same length"),
        ({"question": ""}, "no question"),
        ({"context": None}, "no context"),
        ({"is_impossible": True}, "marked is_impossible and has answers"),
        ({"is_impossible": False, "answers": []}, "mark it is_impossible"),
    ],
)
def test_an_entry_that_cannot_be_learnt_from_says_why(tmp_path: Path, changes: dict[str, Any], fault: str) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text("\n".join([json.dumps(entry()), "", json.dumps(entry(**changes))]), encoding="utf-8")
    with pytest.raises(InvalidInput) as refused:
        read_examples(path)
    assert refused.value.detail.startswith("1 of the 2 questions of q.jsonl cannot be learnt from:\n  line 3: ")
    assert fault in refused.value.detail


@pytest.mark.parametrize("line", ["not json", '["a"]', "{}", '{"question": "Who'])
def test_a_line_that_is_no_object_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text(f"{json.dumps(entry())}\n{line}\n", encoding="utf-8")
    with pytest.raises(InvalidInput, match="line 2: it is no JSON object with question, context and answers"):
        read_examples(path)


def test_wrong_offsets_are_listed_with_their_lines_up_to_a_limit(tmp_path: Path) -> None:
    document = make_document(articles=8)
    for article in document["data"]:
        for paragraph in article["paragraphs"]:
            paragraph["qas"][0]["answers"][0]["answer_start"] += 1
    path = write_document(tmp_path / "q.json", document)
    with pytest.raises(InvalidInput) as refused:
        read_examples(path)
    head, *listed = refused.value.detail.splitlines()
    assert head == "32 of the 96 questions of q.json cannot be learnt from:"
    assert len(listed) == MOST_LISTED + 1
    assert listed[-1] == f"  and {32 - MOST_LISTED} more"
    place, _, _ = listed[1].partition(":")
    number = int(place.split()[1].rstrip(","))
    assert '"id": "3-0-1-0"' in path.read_text().splitlines()[number - 1]
    assert "data[0].paragraphs[1].qas[0], id 3-0-1-0" in place


def test_a_file_without_questions_or_that_is_absent_is_one_sentence(tmp_path: Path) -> None:
    empty = tmp_path / "q.jsonl"
    empty.touch()
    with pytest.raises(InvalidInput, match="has no questions"):
        read_examples(empty)
    with pytest.raises(SetupError, match="cannot be read"):
        read_examples(tmp_path / "absent.json")
    odd = write_document(tmp_path / "odd.json", {"data": [{"paragraphs": [{"qas": []}]}]})
    with pytest.raises(InvalidInput, match="not in SQuAD's layout"):
        read_examples(odd)


def example(id: str, title: str = "", context: str = PASSAGE) -> Example:
    return Example(id, "Where?", context, ((0, 3),), title)


def test_articles_set_aside_are_on_one_side_of_the_split_only() -> None:
    first = [example(str(n), title=f"t{n % 4}", context=f"passage {n}") for n in range(12)]
    second = [example("made", title="t1", context="a passage of its own"), example("other", title="t9")]
    split = split_examples([first, second], [], ["t1"], 0.05)
    assert {each.title for each in split.dev} == {"t1"}
    assert {each.title for file in split.train for each in file} == {"t0", "t2", "t3", "t9"}
    assert split.dropped == 1
    with pytest.raises(InvalidInput, match="'t7'"):
        split_examples([first], [], ["t7"], 0.05)


def test_a_development_file_takes_its_passages_and_articles_out_of_training() -> None:
    first = [example("a", context="one"), example("b", context="two"), example("c", "t", "three")]
    dev = [example("d", context="one"), example("e", "t", "four")]
    split = split_examples([first], dev, [], 0.05)
    assert [each.id for each in split.train[0]] == ["b"]
    assert (split.dev, split.dropped) == (dev, 2)


def test_without_a_development_part_one_is_set_aside_by_passage() -> None:
    split = split_examples([[example(str(n), context=f"passage {n // 2}") for n in range(40)]], [], [], 0.1)
    assert len(split.dev) == 4
    assert not {each.context for each in split.dev} & {each.context for each in split.train[0]}
    with pytest.raises(InvalidInput, match="--dev"):
        split_examples([[example("a"), example("b")]], [], [], 0.1)
