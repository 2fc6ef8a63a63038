"""What pages are made of: bars, marked passages, numbers and sentences, snippets, and the console's files."""

import ast
import hashlib
import json
import re
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.domain.overview import DoneInfo, ForecastInfo, LatencyInfo, Overview, Sign
from corelane.plugins.console.pages.highlight import Piece, cut
from corelane.plugins.console.pages.mount import FILES
from corelane.plugins.console.pages.render import duration, fragment, number, percent, prose, size
from corelane.plugins.console.pages.samples import SAMPLES
from corelane.plugins.console.pages.snippets import Service, ask_snippets, job_snippets, jobs_snippets
from corelane.plugins.console.pages.waterfall import FULL, lay_out
from corelane.tasks.question_answering.wire import Answer

TIMING = {"submit_s": 0.002, "wait_s": 0.01, "compute_s": 0.02, "merge_s": 0.0, "other_s": 0.0, "wall_s": 0.032}


def test_bars_follow_each_other_and_fill_the_whole() -> None:
    bars = lay_out(TIMING, 0.032)
    assert [bar.name for bar in bars] == ["submit", "wait", "compute", "merge", "other"]
    assert sum(bar.share for bar in bars) == pytest.approx(1)
    assert bars[1].x == pytest.approx(bars[0].width, abs=0.2)
    assert all(bar.x >= 0 and bar.x + bar.width <= FULL for bar in bars)


def test_parts_larger_than_the_whole_still_fit() -> None:
    bars = lay_out({"wait_s": 3.0, "compute_s": 1.0, "commit_s": None}, 2.0)
    assert bars[-1].x + bars[-1].width <= FULL


def test_job_without_time_has_bars_without_width() -> None:
    assert all(bar.width == 0 for bar in lay_out({"wait_s": 0.0}, 0.0))


def answer(context: str, text: str) -> Answer:
    start = context.index(text)
    return Answer(text=text, start=start, end=start + len(text), score=0.5)


def test_answers_are_marked_by_rank() -> None:
    context = "The Inn, the Ilz and the Danube."
    pieces = cut(context, [answer(context, "Danube"), answer(context, "Inn")])
    assert pieces == [Piece("The "), Piece("Inn", 2), Piece(", the Ilz and the "), Piece("Danube", 1), Piece(".")]


def test_answer_that_is_not_there_is_left_unmarked() -> None:
    assert cut("short", [Answer(text="longer", start=2, end=8, score=1)]) == [Piece("short")]
    assert cut("short", [Answer(text="ort", start=1, end=4, score=1)]) == [Piece("short")]


@given(st.text(max_size=40), st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=6))
def test_pieces_are_the_passage_whatever_the_answers(context: str, spans: list[tuple[int, int]]) -> None:
    answers = [Answer(text=context[start:end], start=start, end=end, score=0) for start, end in spans]
    pieces = cut(context, answers)
    assert "".join(piece.text for piece in pieces) == context
    ranks = [piece.rank for piece in pieces if piece.rank]
    assert len(ranks) == len(set(ranks))


def test_samples_differ_and_are_valid() -> None:
    assert len({sample.name for sample in SAMPLES}) == len(SAMPLES) >= 6
    assert all(sample.question.strip() and sample.context.strip() for sample in SAMPLES)


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


def test_time_of_a_job_is_said_to_be_the_last_minute_s_beside_jobs_that_ended_before() -> None:
    hour = {"last_hour": {"items": 760, "jobs": 760}}
    seen = Overview(at="", forecast=ForecastInfo(sign=Sign.IDLE, text=""), done=DoneInfo.model_validate(hour))
    html = fragment("overview/facts.html", seen=seen)
    assert "items in 760 jobs" in html
    assert "no job ended in the last minute" in html
    seen.latency = LatencyInfo(p50_s=0.02, p95_s=0.05)
    assert "median; 95 in 100 within 50 ms" in fragment("overview/facts.html", seen=seen)


ODD = 'What\'s "it"?\n$HOME `id` \\ 👩🏽‍🚀\nJSON\n<b>\x07'

BODY = {"question": ODD, "context": ODD * 2, "model": "default", "options": {"top_k": 3, "no_answer": True}}


@pytest.mark.parametrize("requires_keys", [True, False])
def test_curl_sends_exactly_what_was_asked(requires_keys: bool) -> None:
    command = ask_snippets(Service("http://host:8000", requires_keys), BODY).curl
    script = f'curl() {{ printf "%s\\n" "$@" >&2; cat; }}\n{command}'
    done = subprocess.run(["bash", "-c", script], env={"CORELANE_API_KEY": "k1"}, capture_output=True, check=True)
    assert json.loads(done.stdout) == BODY
    words = done.stderr.decode().splitlines()
    assert ("Authorization: Bearer k1" in words) == requires_keys
    assert "http://host:8000/v1/answers" in words


@pytest.mark.parametrize("requires_keys", [True, False])
def test_python_asks_exactly_the_same(requires_keys: bool) -> None:
    tree = ast.parse(ask_snippets(Service("http://host:8000", requires_keys), BODY).python)
    [call] = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "client.ask"]
    given = {word.arg: ast.literal_eval(word.value) for word in call.keywords}
    assert given == {"question": ODD, "context": ODD * 2, "model": "default", "top_k": 3, "no_answer": True}
    assert ("api_key" in ast.unparse(tree)) == requires_keys


def test_no_snippet_names_a_method_that_curl_implies() -> None:
    assert "-X" not in ask_snippets(Service("http://h", False), BODY).curl
    assert Service("http://h", False).curl("/v1/x", "POST").startswith("curl -sS -X POST ")


def test_job_and_list_can_be_read_as_python() -> None:
    service = Service("http://h", True)
    ast.parse(job_snippets(service, "job_0").python)
    snippets = jobs_snippets(service, {"label": ["a", "b"], "status": ["failed"], "limit": 20})
    ast.parse(snippets.python)
    assert 'label=["a", "b"]' in snippets.python
    assert "label=a&label=b" in snippets.curl


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
