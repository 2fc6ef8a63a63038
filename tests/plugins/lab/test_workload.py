import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from corelane.errors import InvalidInput
from corelane.plugins.lab.results import ResultJudge, add_up, alike
from corelane.plugins.lab.schema import ResultCheck
from corelane.plugins.lab.senders import Reply
from corelane.plugins.lab.synthetic import make_items, parse_lengths
from corelane.plugins.lab.workload import BenchItem, Given, Workload, bench_of, read_file
from tests.tools.told_core import FORMED

SQUAD = {
    "data": [
        {
            "title": "Ada",
            "paragraphs": [
                {
                    "context": "Ada wrote it in 1843.",
                    "qas": [
                        {"id": "a", "question": "Who wrote it?", "answers": [{"text": "Ada", "answer_start": 0}]},
                        {"id": "b", "question": "When?", "answers": [{"text": "1843", "answer_start": 16}]},
                    ],
                }
            ],
        }
    ]
}


def questions(count: int = 20, seed: int = 0) -> Workload:
    asked = [
        BenchItem({"question": f"Who is {n}?", "context": f"It is {n}. " + "word " * 10 * n}, (str(n),))
        for n in range(count)
    ]
    return Workload(asked, "made", seed)


@pytest.mark.parametrize("pack", [lambda content: content, gzip.compress], ids=["plain", "gzip"])
def test_squad_files_are_read(pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    (tmp_path / "file.json").write_bytes(pack(json.dumps(SQUAD).encode()))
    found = read_file(tmp_path / "file.json")
    assert [each.fields["question"] for each in found.asked] == ["Who wrote it?", "When?"]
    assert found.has_known
    described = found.describe()
    assert (described.items, described.source, described.words) == (2, "file.json", 14)
    assert described.has_known


@pytest.mark.parametrize("lines", [1, 3])
def test_lines_of_json_are_read(lines: int, tmp_path: Path) -> None:
    text = '{"question": "Who?", "context": "Ada did.", "answers": [{"text": "Ada"}, "Ada L."]}\n'
    (tmp_path / "file.jsonl").write_text(text * lines)
    found = read_file(tmp_path / "file.jsonl")
    assert len(found.asked) == lines
    assert found.asked[0].known == ("Ada", "Ada L.")


def test_a_line_that_is_no_question_is_named(tmp_path: Path) -> None:
    (tmp_path / "file.jsonl").write_text('{"question": "Who?", "context": "Ada."}\n{"question": "Who?"}\n')
    with pytest.raises(InvalidInput, match="line 2"):
        read_file(tmp_path / "file.jsonl")


def test_requests_take_every_question_before_any_comes_again() -> None:
    found = questions()
    taken = [place for number in range(5) for place in found.pick(number, 4)]
    assert sorted(taken) == list(range(20))
    assert found.distinct(3, 4) == taken[:12]
    assert found.pick(5, 4) == found.pick(0, 4)


def test_the_order_of_questions_hangs_on_the_seed_and_their_hash_does_not() -> None:
    assert questions(seed=1).pick(0, 20) != questions(seed=2).pick(0, 20)
    assert questions(seed=1).describe().hash == questions(seed=2).describe().hash
    assert questions(19).describe().hash != questions(20).describe().hash


def test_a_request_of_a_trace_asks_questions_of_about_its_length() -> None:
    found = questions(60)
    ordered = sorted(found.tokens)
    wanted = ordered[30]
    lengths = [found.tokens[place] for number in range(10) for place in found.pick(number, 2, 2 * wanted)]
    assert all(ordered[22] <= length <= ordered[38] for length in lengths)
    assert len(set(lengths)) > 1


@pytest.mark.parametrize("lengths", ["words=lognormal(120,0.6)", "words=uniform(50,400)", "words=normal(120,30)"])
def test_made_questions_have_their_answer_in_the_passage(lengths: str) -> None:
    found = make_items(lengths, 50, seed=3)
    assert len(found.asked) == 50
    assert all(each.known[0] in each.fields["context"] for each in found.asked)
    assert make_items(lengths, 50, seed=3).describe() == found.describe()
    assert make_items(lengths, 50, seed=4).describe().hash != found.describe().hash


def test_made_passages_have_the_lengths_asked_for() -> None:
    assert {len(each.fields["context"].split()) for each in make_items("words=120", 30).asked} == {120}
    spread = make_items("words=lognormal(120,0.6)", 400).describe().text_words
    assert 100 < spread.p50 < 140
    assert 200 < spread.p90 < 330
    tokens = make_items("tokens=128", 30).tokens
    assert max(tokens) <= 128
    assert min(tokens) >= 122


def test_made_passages_may_be_of_a_files_sentences() -> None:
    found = make_items("words=40", 5, texts=["A cat sat on the mat. It purred for an hour."])
    assert all(
        "purred for an hour" in each.fields["context"] or "sat on the mat" in each.fields["context"]
        for each in found.asked
    )


@pytest.mark.parametrize("task", FORMED)
def test_items_are_made_and_read_for_every_task(task: str, tmp_path: Path) -> None:
    made = make_items("tokens=150", 5, seed=3, task=task)
    assert made.describe() == make_items("tokens=150", 5, seed=3, task=task).describe()
    rows = {"text-ranking": 8, "zero-shot-classification": 4}.get(task, 1)
    assert all(rows * 120 < tokens <= rows * 150 for tokens in made.tokens)
    (tmp_path / "file.jsonl").write_bytes(b"\n".join(orjson.dumps({"id": "a", **each.fields}) for each in made.asked))
    read = read_file(tmp_path / "file.jsonl", task=task)
    assert [each.fields for each in read.asked] == [each.fields for each in made.asked]
    (tmp_path / "file.jsonl").write_text('{"id": "a"}')
    with pytest.raises(InvalidInput, match=f"line 1: a line of {task} is"):
        read_file(tmp_path / "file.jsonl", task=task)


@pytest.mark.parametrize(
    ("task", "one", "other", "are_alike"),
    [
        ("text-classification", [("a", 0.501), ("b", 0.499)], [("b", 0.501), ("a", 0.499)], True),
        ("text-classification", [("a", 0.7), ("b", 0.3)], [("b", 0.7), ("a", 0.3)], False),
        ("text-classification", [("a", 0.7)], [("a", 0.7), ("b", 0.3)], False),
        ("feature-extraction", [0.5, -0.25], [0.5001, -0.2499], True),
        ("feature-extraction", [0.5, -0.25], [0.25, -0.5], False),
    ],
)
def test_results_are_alike_if_they_differ_by_rounding(task: str, one: Any, other: Any, are_alike: bool) -> None:
    bench = bench_of(task)

    def output(given: Any) -> Any:
        if task == "feature-extraction":
            return bench.output({"embedding": given})
        return bench.output({"labels": [{"label": label, "score": score} for label, score in given]})

    assert alike(output(one), output(other)) == are_alike


@pytest.mark.parametrize("text", ["", "words", "words=", "words=zipf(1,2)", "words=uniform(9,3)", "words=0", "chars=9"])
def test_a_distribution_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_lengths(text)


def test_lost_doubled_and_wrong_answers_are_found() -> None:
    found = questions(3)
    found.idle = {0: Given(0, ("0", 6, 7)), 1: Given(0, ("1", 6, 7)), 2: Given(0, None)}
    judge = ResultJudge(found)
    right = judge.judge([0, 1, 2], Reply("ok", results=[Given(0, ("0", 6, 7)), Given(1, ("1", 6, 7)), Given(2, None)]))
    assert (right.checked, right.is_wrong) == (3, False)
    bad = judge.judge(
        [0, 1, 2], Reply("ok", results=[Given(0, ("0", 6, 7)), Given(0, ("0", 6, 7)), Given(1, ("2", 9, 10))])
    )
    assert (bad.checked, bad.lost, bad.twice, bad.differ_from_idle) == (3, 1, 1, 1)
    assert bad.exact == pytest.approx(100 * 2 / 3)
    elsewhere = judge.judge([0], Reply("ok", results=[Given(0, ("0", 9, 10))]))
    assert elsewhere.differ_from_idle == 1, "the same words elsewhere are another answer"
    assert not judge.judge([0], Reply("error")).is_wrong, "failures have no answers to check"


def test_checks_of_processes_add_up() -> None:
    parts = [
        ResultCheck(checked=3, lost=1, exact=50, f1=60, differ_from_idle=1),
        ResultCheck(checked=1, exact=90, f1=80),
    ]
    assert add_up(parts) == ResultCheck(checked=4, lost=1, differ_from_idle=1, exact=60, f1=65)
