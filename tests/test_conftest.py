"""What all tests have in common."""

import os
import subprocess
import sys
from pathlib import Path

from tests.tools.artifacts import ROOT


def test_no_setting_in_the_environment_reaches_a_test_or_a_process_that_it_starts() -> None:
    code = "import subprocess, tests.conftest; print(subprocess.check_output(['env'], text=True))"
    strays = {"CORELANE_PORT": "1", "corelane_models": "a", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    given = os.environ | strays | {"CORELANE_TEST_BROWSER": "required"}
    shown = subprocess.check_output([sys.executable, "-c", code], env=given, cwd=ROOT, text=True)
    names = {line.partition("=")[0] for line in shown.splitlines()}
    assert "CORELANE_TEST_BROWSER" in names
    assert not names & strays.keys()


def test_what_a_failed_test_left_open_fails_no_other(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    (tmp_path / "test_it.py").write_text(
        "import socket\n"
        "def test_that_fails():\n    left = [socket.socket()]; left.append(left); assert not left\n"
        "def test_next(): pass\n"
        "def test_last(): import gc; gc.collect()\n"
    )
    argv = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "test_it.py"]
    given = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    given |= {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(argv, cwd=tmp_path, env=given, capture_output=True, text=True)
    assert "1 failed, 2 passed" in done.stdout, done.stdout
