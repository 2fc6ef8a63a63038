"""``corelane run module:Class``: a class asked in this process, without a service."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.snippets import ROOT

PACKAGES = Path(__file__).parent / "packages"


def run(*arguments: str, lines: str = "") -> tuple[int, str, str]:
    """Run the command in the folder of the packages, as a user does."""
    argv = [sys.executable, "-m", "corelane", "run", *arguments]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(argv, input=lines, capture_output=True, text=True, env=env, cwd=PACKAGES, timeout=120)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("item", ['{"text": "so rude"}', "text=so rude", "so rude"])
def test_class_is_asked_without_a_service(item: str) -> None:
    assert run("shop.models:Sentiment", item)[:2] == (0, '{"output":{"label":"bad","score":1.0}}\n')
    status, printed, _ = run("shop.models:Translator", item, "-O", "language=fr", "--json")
    assert (status, json.loads(printed)["output"]["label"]) == (0, "fr:so rude")


def test_lines_are_answered_in_order_and_a_bad_one_fails_alone(tmp_path: Path) -> None:
    file, output = tmp_path / "items.jsonl", tmp_path / "results.jsonl"
    texts = [*(f"kind {n}" for n in range(600)), "raise"]
    lines = [*({"id": str(n), "text": text} for n, text in enumerate(texts)), {"a": 1}]
    file.write_text("\n".join(map(json.dumps, lines)))
    status, _, log = run("shop.models:Careful", str(file), "-o", str(output))
    *results, raised, other = map(json.loads, output.read_text().splitlines())
    assert [(each["id"], each["output"]["label"]) for each in results] == [(str(n), "good") for n in range(600)]
    assert status == 2
    assert raised["error"]["detail"].startswith("predict raised ValueError at models.py:")
    assert "line 602: Additional properties are not allowed ('a' was unexpected); careful@" in other["error"]["detail"]
    assert "ValueError: no such thing" in log
    again = run("shop.models:Careful", str(file), "-o", str(output))
    assert (again[0], "exists, and such a run is not resumed" in again[2]) == (1, True)


@pytest.mark.parametrize(
    ("name", "sentence", "traceback"),
    [
        ("models:Hostile", "Output raised UnicodeEncodeError", "surrogates not allowed"),
        ("models:Short", "predict gave 0 outputs for 1 items", ""),
        ("models:Broken", "setup of shop.models:Broken raised FileNotFoundError at models.py:", "in setup"),
        ("models:NoPredict", "shop.models:NoPredict has no predict", ""),
        ("missing:Lost", "shop.missing:Lost does not import: ModuleNotFoundError", "import no_such_library"),
        ("models:", "names no handler; names look like package.module:Class", ""),
    ],
)
def test_what_is_wrong_with_a_class_is_shown_with_its_traceback(name: str, sentence: str, traceback: str) -> None:
    status, printed, said = run(f"shop.{name}", "text=key")
    assert (status, printed) == (1, "")
    assert sentence in said
    assert traceback in said
    assert ("Traceback" in said) == bool(traceback)
    assert "worker's log" not in said
