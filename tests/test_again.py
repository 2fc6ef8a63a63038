"""What `make test` does with failed tests: each runs again, alone, at the end."""

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.tools.artifacts import ROOT
from tests.tools.waiting import eventually

#: Tests that fail beside others only, as xdist sets this variable.
FLAKY = """
import os, pytest
BESIDE = "PYTEST_XDIST_WORKER" in os.environ
def test_of_nothing(): pass
def test_that_fails(): assert not BESIDE, "first time"
def test_that_crashes():
    if BESIDE: os._exit(3)
@pytest.fixture
def thing():
    if BESIDE: raise OSError("no thing")
@pytest.fixture
def left():
    yield
    if BESIDE: raise OSError("still there")
def test_without_its_fixture(thing): pass
def test_that_leaves_something(left): pass
@pytest.mark.parametrize("name", ["a::b c/d"])
def test_of_a_name(name): assert not BESIDE
"""


def environment(folder: Path, **more: str) -> dict[str, str]:
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "CORELANE_TEST_"))}
    plain |= {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return plain | {"TESTS_AGAIN_REPORT": str(folder / "report")} | more


def argv(*options: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "-p", "xdist", "-p", "tests.again", "-n", "1", *options]


def run(folder: Path, text: str, *options: str, **more: str) -> tuple[int, str, str]:
    """Run tests of this text; return its exit status, its closing line without the time, and the report."""
    (folder / "pytest.ini").write_text("[pytest]\n")
    (folder / "test_it.py").write_text(text)
    done = subprocess.run(
        argv(*options), cwd=folder, env=environment(folder, **more), capture_output=True, text=True, timeout=60
    )
    report = folder / "report"
    told = report.read_text() if report.exists() else ""
    assert all(line in done.stdout for line in told.splitlines()), done.stdout
    return done.returncode, done.stdout.splitlines()[-1].strip("= ").partition(" in ")[0], told


def test_tests_that_pass_alone_are_listed_as_flaky_and_do_not_fail_the_run(tmp_path: Path) -> None:
    status, closing, report = run(tmp_path, FLAKY + "def test_last(): pass\n", PYTEST_ADDOPTS="-n 2 test_it.py")
    assert (status, closing) == (0, "7 passed, 5 flaky")
    assert set(report.splitlines()) == {
        "FLAKY test_it.py::test_that_fails: AssertionError: first time; alone: passed",
        "FLAKY test_it.py::test_that_crashes: worker 'gw0' crashed while running 'test_it.py::test_that_crashes'; "
        "alone: passed",
        "FLAKY test_it.py::test_without_its_fixture: OSError: no thing; alone: passed",
        "FLAKY test_it.py::test_that_leaves_something: OSError: still there; alone: passed",
        "FLAKY test_it.py::test_of_a_name[a::b c/d]: assert not True; alone: passed",
    }


def test_a_test_that_fails_again_fails_the_run(tmp_path: Path) -> None:
    text = """
import os
def test_that_fails(): assert "PYTEST_XDIST_WORKER" not in os.environ, "first time"
def test_at_fault(): assert not "ever right"
"""
    status, closing, report = run(tmp_path, text)
    assert (status, closing) == (1, "1 failed, 1 passed, 1 flaky")
    assert report.splitlines() == [
        "FLAKY test_it.py::test_that_fails: AssertionError: first time; alone: passed",
        "FAILED test_it.py::test_at_fault: AssertionError: assert not 'ever right'; alone: failed with status 1",
    ]


def test_a_file_that_leaves_something_fails_the_run_as_no_test_of_it_does_alone(tmp_path: Path) -> None:
    text = """
import os, pytest
@pytest.fixture(scope="module", autouse=True)
def whole():
    yield
    assert "PYTEST_XDIST_WORKER" not in os.environ
def test_first(): pass
def test_last(): pass
"""
    status, closing, report = run(tmp_path, text)
    assert (status, closing) == (1, "2 passed, 1 error")
    assert report.endswith("alone: not tried, as it may be about all tests of the file\n")


@pytest.mark.parametrize(
    ("text", "status", "closing"),
    [
        ("def test_it(): pass\n", 0, "1 passed"),
        ("import nothing_of_this_name\n", 1, "1 error"),
        (
            "import os, pytest\n@pytest.mark.parametrize('x', range(21))\n"
            "def test_it(x): assert 'PYTEST_XDIST_WORKER' not in os.environ\n",
            1,
            "21 failed",
        ),
        ("import os\ndef test_it(): os._exit(3)\ndef test_that_never_ran(): pass\n", 1, "1 failed"),
    ],
    ids=["no failures", "not collected", "many failures", "not all ran"],
)
def test_nothing_runs_again(tmp_path: Path, text: str, status: int, closing: str) -> None:
    assert run(tmp_path, text, "--max-worker-restart=0") == (status, closing, "")


def test_an_interrupted_run_runs_nothing_again(tmp_path: Path) -> None:
    text = f"""
import os, pathlib, time
def test_that_fails(): assert "PYTEST_XDIST_WORKER" not in os.environ
def test_that_takes_long():
    pathlib.Path({str(tmp_path / "begun")!r}).touch()
    time.sleep(60)
"""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_it.py").write_text(text)
    # A program in the background of a shell ignores Ctrl-C, and so do those that it starts.
    heed = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    options: dict[str, Any] = {"preexec_fn": heed, "start_new_session": True}
    with subprocess.Popen(
        argv(), cwd=tmp_path, env=environment(tmp_path), stdout=subprocess.DEVNULL, **options
    ) as process:
        eventually((tmp_path / "begun").exists)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        assert process.wait(60) == pytest.ExitCode.INTERRUPTED
    assert not (tmp_path / "report").exists()
