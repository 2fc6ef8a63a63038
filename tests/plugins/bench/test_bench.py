"""``corelane bench`` on a real service: each kind of load, any task, right answers, refusals, and what it prints."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from corelane.cli.app import make_cli
from corelane.tasks.registry import TASKS
from tests.tools.fleet import Fleet, start_fleet


def bench(fleet: Fleet, *options: str) -> Result:
    return CliRunner().invoke(make_cli(), ["bench", "--url", fleet.url, *options])


def figures(fleet: Fleet, *options: str) -> dict[str, Any]:
    done = bench(fleet, *options, "--json")
    assert done.exit_code == 0, done.output
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["failed"] == {}
    return found


def test_callers_ask_again_once_they_are_answered(fleet: Fleet) -> None:
    found = figures(fleet, "--callers", "3", "--requests", "30", "--items", "10", "--price-per-hour", "0.228")
    assert found["load"] == "3 callers"
    assert (found["requests"], found["items"]) == (30, 30)
    assert 0 < found["p50_ms"] <= found["p95_ms"] <= found["p99_ms"]
    # Three at a time: Little's law.
    assert found["items_per_s"] * found["p50_ms"] / 1000 == pytest.approx(3, rel=0.6)
    assert found["f1"] == 100
    assert found["cost_per_million"] == pytest.approx(1e6 / found["items_per_s"] * 0.228 / 3600, rel=0.01)
    assert found["model"].startswith("qa-minilm@")
    assert found["cores"].keys() == fleet.states().keys()
    assert 0 < max(found["cores"].values()) <= 1


def test_requests_at_a_rate_are_sent_when_they_are_due(fleet: Fleet) -> None:
    found = figures(fleet, "--rate", "20", "--duration", "3", "--tokens", "32", "--per-request", "2")
    assert found["load"] == "20 requests/s, 2 items a request"
    assert found["seconds"] == 3
    assert 30 <= found["requests"] <= 90
    assert found["items"] == 2 * found["requests"]


def test_items_of_a_file_are_one_job_with_its_f1(fleet: Fleet, tmp_path: Path) -> None:
    context = "Ada wrote the first program in 1843, and Charles built the engine."
    asked = {"Who wrote the first program?": "Ada", "Who built the engine?": "Charles", "When?": "nobody knows"}
    lines = [{"question": question, "context": context, "answers": [answer]} for question, answer in asked.items()]
    (tmp_path / "lines.jsonl").write_text("\n".join(map(json.dumps, lines)))
    found = figures(fleet, str(tmp_path / "lines.jsonl"), "--one-job")
    assert (found["load"], found["requests"], found["items"]) == ("one job", 1, 3)
    assert found["f1"] == pytest.approx(200 / 3, abs=0.01)
    assert found["seconds"] == pytest.approx(3 / found["items_per_s"], abs=0.001)
    assert found["p50_ms"] is None


def test_the_table_shows_the_load_and_each_core(fleet: Fleet) -> None:
    done = bench(fleet, "--requests", "3", "--items", "3")
    assert done.exit_code == 0, done.output
    first, _, names, cells, _, heading, *cores = done.stdout.splitlines()
    assert "3 made items of 128 tokens, 1 caller" in first
    assert names.split() == ["requests", "items/s", "p50", "ms", "p95", "ms", "p99", "ms", "failed", "F1"]
    assert cells.split()[0] == "3"
    assert heading.split() == ["core", "at", "work"]
    assert [line.split()[0] for line in cores] == sorted(fleet.states())


def test_failures_are_counted_by_code_and_the_exit_code_says_so(fleet: Fleet, tmp_path: Path) -> None:
    """The first items, which are sent alone, are taken; a later one is too long for one request."""
    lines = [{"question": "Who?", "context": "Ada."}] * 9 + [{"question": "Who?" * 5000, "context": "Ada."}]
    (tmp_path / "lines.jsonl").write_text("\n".join(map(json.dumps, lines)))
    done = bench(fleet, str(tmp_path / "lines.jsonl"), "--requests", "10", "--json")
    assert done.exit_code == 1, done.output
    found = json.loads(done.stdout)
    assert found["failed"] == {"too_large": 1}
    assert found["items"] == 9
    assert "1 failed with too_large" in done.stderr


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--rate", "5", "--callers", "2"), "give one of --callers, --rate and --one-job"),
        (("--one-job", "--duration", "5"), "--one-job ends with its items"),
        (("--model", "none@1"), "none@1"),
        (("--url", "http://127.0.0.1:9"), "no Corelane replies at http://127.0.0.1:9"),
    ],
)
def test_a_load_that_cannot_begin_is_refused_with_a_sentence(options: tuple[str, ...], said: str, fleet: Fleet) -> None:
    done = bench(fleet, *options)
    assert done.exit_code == 1
    assert said in done.stderr
    assert done.stdout == ""


@pytest.fixture(scope="module")
def null(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("null")
    found = start_fleet(folder, folder, "--no-flower", CORELANE_TARGET="null")
    yield found
    found.stop()


@pytest.mark.parametrize("task", TASKS)
def test_a_model_of_any_task_is_measured(task: str, null: Fleet) -> None:
    loaded = CliRunner().invoke(make_cli(), ["models", "load", f"{task}@0", "--url", null.url])
    assert loaded.exit_code == 0, loaded.output
    found = figures(null, "--model", f"{task}@0", "--requests", "4", "--per-request", "3", "--items", "5")
    assert (found["task"], found["items"]) == (task, 12)
