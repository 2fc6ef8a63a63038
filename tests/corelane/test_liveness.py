"""Signs of life: what a health check says of them, and that it costs next to nothing."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from corelane.metrics.liveness import (
    FRESH_S,
    MOST_REASON_CHARS,
    HealthProbe,
    Liveness,
    LivenessFile,
    judge,
    read_liveness,
)

STARTUP, READY, LIVE = HealthProbe

#: What each question is answered about a fresh sign, by state: started, ready, alive.
ANSWERS = {
    "starting": (False, False, True),
    "idle": (True, True, True),
    "busy": (True, True, True),
    "running": (True, True, True),
    # Another process would find the core held, or broken, too: nothing may restart it for that.
    "waiting": (False, False, True),
    "restarting": (False, False, True),
    "out_of_service": (True, False, True),
    "failed": (False, False, True),
}


@pytest.mark.parametrize(("state", "answers"), ANSWERS.items())
def test_state_of_a_part_answers_each_question(state: str, answers: tuple[bool, ...]) -> None:
    signs = [Liveness("pod-0/0", state, "why", 100.0)]
    for question, is_well in zip(HealthProbe, answers, strict=True):
        fault = judge(question, signs, 101.0)
        assert (fault is None) == is_well, question
        assert fault in (None, f"pod-0/0 is {state}: why")


def test_part_without_a_fresh_sign_does_not_live() -> None:
    assert "no sign of life yet" in str(judge(LIVE, [], 100))
    sign = Liveness("pod-0/0", "busy", at_s=100)
    assert judge(LIVE, [sign], 100 + FRESH_S) is None
    for question in HealthProbe:
        assert "no sign of life for a minute" in str(judge(question, [sign], 101 + FRESH_S))
        assert judge(question, [sign], 99) is not None, "from before the host was restarted"


def test_one_part_in_trouble_is_enough() -> None:
    signs = [Liveness("keeper@pod", "running", at_s=1), Liveness("pod/0", "waiting", at_s=1)]
    assert judge(READY, signs, 2) == "pod/0 is waiting"
    assert judge(LIVE, signs, 2) is None


def test_sign_is_a_file_that_is_replaced(tmp_path: Path) -> None:
    file = LivenessFile(tmp_path / "health", "pod-0/0")
    file.write("starting")
    file.write("out_of_service", "x" * 9999)
    [sign] = read_liveness(tmp_path / "health")
    assert (sign.part, sign.state, len(sign.reason)) == ("pod-0/0", "out_of_service", MOST_REASON_CHARS)
    assert 0 <= time.monotonic() - sign.at_s < FRESH_S
    assert [path.name for path in (tmp_path / "health").iterdir()] == ["pod-0.0.json"]


def test_sign_that_cannot_be_written_or_read_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    LivenessFile(tmp_path / "file", "a").write("idle")
    LivenessFile(None, "a").write("idle")
    for name, text in (("torn.json", '{"part": "a"'), ("list.json", "[1]"), ("other.json", '{"colour": "red"}')):
        (tmp_path / name).write_text(text)
    assert read_liveness(tmp_path) == []


def probe(*arguments: str) -> tuple[int, str]:
    done = subprocess.run([sys.executable, "-m", "corelane.cli.probe", *arguments], capture_output=True, text=True)
    return done.returncode, done.stdout.strip()


def test_probe_says_why_and_imports_no_library(tmp_path: Path) -> None:
    LivenessFile(tmp_path, "pod-0/0").write("waiting", "another process holds the core")
    assert probe("ready", str(tmp_path)) == (1, "pod-0/0 is waiting: another process holds the core")
    assert probe("live", str(tmp_path)) == (0, "")
    assert probe("other", str(tmp_path))[0] == 2
    code = "import sys, corelane.cli.probe; print(*(name for name in sys.modules if '.' not in name))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"pydantic", "typer", "redis", "orjson", "structlog", "torch"} & set(loaded)
