"""`python -m tests.again`: what is run a second time, and what it says and returns then."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

#: Whether this process is the first to come here.
FIRST = """
import os, pathlib, pytest
mark = pathlib.Path("ran")
is_first = not mark.exists()
mark.touch()
"""
FAILS = f"{FIRST}\ndef test_fails(): assert not is_first, 'the first time'"
SET_UP = f"{FIRST}\n@pytest.fixture\ndef made(): assert not is_first\ndef test_set_up(made): pass"
CRASHES = f"{FIRST}\ndef test_crashes(): is_first and os._exit(9)"
ALWAYS = "def test_always(): assert False, 'always'"
PASSES = "def test_passes(): pass"
TOO_MANY = "\n".join(f"def test_{number}(): assert False" for number in range(21))
NOT_IMPORTED = "import nothing_of_this_name"


def run(folder: Path, *arguments: str, **files: str) -> subprocess.CompletedProcess[str]:
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    command = [sys.executable, "-m", "tests.again", "-p", "no:cacheprovider", "--rootdir", str(folder), *arguments]
    env = {"PYTHONPATH": str(ROOT), "PATH": ""}
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("name", "text", "parallel"),
    [("fails", FAILS, []), ("set_up", SET_UP, []), ("crashes", CRASHES, ["-n", "1"])],
)
def test_failure_that_passes_alone_is_listed_as_flaky(
    tmp_path: Path, name: str, text: str, parallel: list[str]
) -> None:
    done = run(tmp_path, *parallel, **{name: text, "passes": PASSES})
    assert done.returncode == 0, done.stdout
    (line,) = (tmp_path / ".pytest_cache/FLAKY").read_text().splitlines()
    assert line in done.stdout
    assert line.startswith(f"FLAKY test_{name}.py::test_")


def test_failure_that_fails_alone_too_fails_the_run(tmp_path: Path) -> None:
    done = run(tmp_path, once=FAILS, always=ALWAYS)
    assert done.returncode == 1
    assert "FAILED twice, or not tried again: test_always.py::test_always" in done.stdout
    assert not (tmp_path / ".pytest_cache/FLAKY").exists()


@pytest.mark.parametrize(("text", "status"), [(PASSES, 0), (NOT_IMPORTED, 2), ("", 5), (TOO_MANY, 1)])
def test_nothing_runs_again_where_chance_is_not_the_cause(tmp_path: Path, text: str, status: int) -> None:
    done = run(tmp_path, only=text)
    assert done.returncode == status, done.stdout
    assert "again, alone" not in done.stdout
