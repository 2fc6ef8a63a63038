"""What pages are made of: bars, marked passages, numbers and sentences, snippets, and the console's files."""

import ast
import hashlib
import json
import re
import subprocess
from inspect import signature
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.client import Client
from corelane.plugins.console.pages.ask import samples_of
from corelane.plugins.console.pages.mount import FILES
from corelane.plugins.console.pages.render import duration, fragment, number, percent, prose, size
from corelane.plugins.console.pages.snippets import Service, job_snippets, jobs_snippets, task_snippets
from corelane.tasks.presenting import ItemCall, Piece, cut
from corelane.tasks.question_answering.present import mark_answers
from corelane.tasks.question_answering.wire import Answer
from corelane.tasks.registry import TASKS
from corelane.tasks.task import Task
from corelane.tasks.token_classification.present import mark_entities
from corelane.tasks.token_classification.wire import Entity


def answer(context: str, text: str, score: float = 0.5) -> Answer:
    start = context.index(text)
    return Answer(text=text, start=start, end=start + len(text), score=score)


def test_answers_are_marked_by_rank() -> None:
    context = "The Inn, the Ilz and the Danube."
    pieces = mark_answers(context, [answer(context, "Danube"), answer(context, "Inn")])
    assert [(each.text, each.mark) for each in pieces] == [
        *(("The ", ""), ("Inn", "rank-other"), (", the Ilz and the ", ""), ("Danube", "rank-best"), (".", ""))
    ]
    assert [each.title for each in pieces if each.mark] == ["answer 2", "answer 1"]


def test_entities_of_one_label_have_one_colour() -> None:
    text = "👩🏽‍🚀 Ada met Max in 東京."
    found = [("Ada", "PER"), ("Max", "PER"), ("東京", "LOC")]
    entities = [
        Entity(label=label, text=each, start=text.index(each), end=text.index(each) + len(each), score=1)
        for each, label in found
    ]
    pieces = [each for each in mark_entities(text, entities) if each.mark]
    assert [(each.text, each.label) for each in pieces] == found
    assert pieces[0].mark == pieces[1].mark != pieces[2].mark


def test_piece_that_is_not_there_is_left_unmarked() -> None:
    assert cut("short", [(2, Piece("longer", "m"))]) == [Piece("short")]
    assert cut("short", [(1, Piece("ort", "m"))]) == [Piece("short")]


@given(st.text(max_size=40), st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=6))
def test_pieces_are_the_text_whatever_is_marked(text: str, stretches: list[tuple[int, int]]) -> None:
    pieces = cut(text, [(start, Piece(text[start:end], "m", str(n))) for n, (start, end) in enumerate(stretches)])
    assert "".join(piece.text for piece in pieces) == text
    marked = [piece.title for piece in pieces if piece.mark]
    assert len(marked) == len(set(marked))


@pytest.mark.parametrize("task", TASKS.values(), ids=list(TASKS))
def test_samples_differ_and_are_valid(task: Task) -> None:
    samples = samples_of(task)
    assert len({sample.name for sample in samples}) == len(samples) >= 1
    assert all(task.item.model_validate(sample.item) for sample in samples)


def test_times_read_well() -> None:
    assert [duration(each) for each in (None, 0, 0.0123, 0.9999)] == ["–", "0 ms", "12 ms", "1.0 s"]
    assert [duration(each) for each in (59, 90, 3600, 12_000, 200_000)] == ["59 s", "2 min", "1 h", "3 h 20 min", "2 d"]


def test_numbers_read_well() -> None:
    assert [number(each) for each in (84_210, 3.44, 0.256, 12.0, 1234.5)] == ["84,210", "3.4", "0.26", "12", "1,234"]
    assert [percent(each) for each in (None, 0, 0.994, 0.5, 1, 0.004)] == [
        "–",
        "0 %",
        "99.4 %",
        "50 %",
        "100 %",
        "0.4 %",
    ]
    assert [size(each) for each in (None, 812, 4.5 * 1024**2, 300 * 1024**3)] == ["–", "812 B", "4.5 MiB", "300 GiB"]


def test_code_in_a_sentence_is_code_and_markup_is_text() -> None:
    assert prose("start `corelane keeper`, not <b>`<i>`</b>") == (
        "start <code>corelane keeper</code>, not &lt;b&gt;<code>&lt;i&gt;</code>&lt;/b&gt;"
    )


def test_problem_with_markup_stays_text() -> None:
    html = fragment(
        "problem_part.html", title="Not Found", code="x", detail="no <script>alert(1)</script>", request_id=""
    )
    assert "<script" not in html
    assert "No &lt;script&gt;" in html


ODD = 'What\'s "it"?\n$HOME `id` \\ 👩🏽‍🚀\nJSON\n<b>\x07'

#: An item of each task, with odd text in it.
ITEMS = {
    name: {key: ODD if isinstance(value, str) else [ODD, ODD * 2] for key, value in task.example.items()}
    for name, task in TASKS.items()
}


def call(task: str, **more: Any) -> ItemCall:
    return TASKS[task].present.call(ITEMS[task], {"model": "m", "options": {"top_k": 3, "no_answer": True}} | more)


@pytest.mark.parametrize("requires_keys", [True, False])
@pytest.mark.parametrize("task", TASKS)
def test_curl_sends_exactly_what_was_asked(task: str, requires_keys: bool) -> None:
    command = task_snippets(Service("http://host:8000", requires_keys), call(task)).curl
    script = f'curl() {{ printf "%s\\n" "$@" >&2; cat; }}\n{command}'
    done = subprocess.run(["bash", "-c", script], env={"CORELANE_API_KEY": "k1"}, capture_output=True, check=True)
    sent = json.loads(done.stdout)
    assert sent.pop("model") == "m"
    assert sent.pop("options") == {"top_k": 3, "no_answer": True}
    assert sent.get("items", [sent]) == [ITEMS[task]]
    words = done.stderr.decode().splitlines()
    assert ("Authorization: Bearer k1" in words) == requires_keys
    assert any(word.startswith("http://host:8000/v1/") for word in words)


@pytest.mark.parametrize("requires_keys", [True, False])
@pytest.mark.parametrize("task", TASKS)
def test_python_asks_exactly_the_same(task: str, requires_keys: bool) -> None:
    asked = call(task)
    tree = ast.parse(task_snippets(Service("http://host:8000", requires_keys), asked).python)
    method = f"client.{asked.method}"
    [made] = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == method]
    assert {word.arg: ast.literal_eval(word.value) for word in made.keywords} == asked.arguments
    signature(getattr(Client, asked.method)).bind(None, **asked.arguments)
    assert ("api_key" in ast.unparse(tree)) == requires_keys


def test_no_snippet_names_a_method_that_curl_implies() -> None:
    assert "-X" not in task_snippets(Service("http://h", False), call("question-answering")).curl
    assert Service("http://h", False).curl("/v1/x", "POST").startswith("curl -sS -X POST ")


def test_job_and_list_can_be_read_as_python() -> None:
    service = Service("http://h", True)
    for task in TASKS.values():
        ast.parse(job_snippets(service, "job_0", task).python)
    snippets = jobs_snippets(service, {"status": ["failed", "expired"], "limit": 20})
    ast.parse(snippets.python)
    assert 'status=["failed", "expired"]' in snippets.python
    assert "status=failed&status=expired" in snippets.curl


VENDOR = FILES / "vendor"


def test_libraries_are_those_that_were_published() -> None:
    sums = dict(line.split()[::-1] for line in (VENDOR / "SHA256SUMS").read_text().splitlines())
    assert set(sums) | {"SHA256SUMS", "README.md"} == {path.name for path in VENDOR.iterdir()}
    for name, wanted in sums.items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == wanted, name


def test_licences_and_versions_stand_beside_them() -> None:
    text = (VENDOR / "README.md").read_text()
    for name in ("htmx.org", "uplot"):
        assert re.search(rf"{re.escape(name)}\S*\s\d+\.\d+\.\d+", text), name
    assert "Zero-Clause BSD" in (VENDOR / "htmx.LICENSE").read_text()
    assert "MIT" in (VENDOR / "uPlot.LICENSE").read_text()


def test_own_files_name_no_other_host() -> None:
    for path in FILES.iterdir():
        if path.suffix in (".css", ".js"):
            assert not re.search(r"https?://|url\(|@import|\beval\b|innerHTML", path.read_text()), path.name
