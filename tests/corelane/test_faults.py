import signal
import subprocess
import sys

import pytest

from corelane.settings import Settings
from corelane.settings.faults import arm, reach

DIE = "from corelane.settings.faults import arm, reach; reach('a.b', arm({points!r})); print('lived')"


def run(*points: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-c", DIE.format(points=points)]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


def test_armed_point_kills_the_process_at_once_and_names_itself() -> None:
    done = run("a.b:1")
    assert done.returncode == -signal.SIGKILL
    assert (done.stdout, done.stderr) == ("", "fault point a.b\n")


def test_points_that_are_not_armed_are_passed() -> None:
    reach("a.b", {})
    reach("a.b", {"a.c": 1.0})
    assert run("a.b:0").stdout == "lived\n"


@pytest.mark.parametrize("text", ["a.b", "a.b:", ":1", "a.b:2", "a.b:often"])
def test_what_is_no_fault_point_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"fault point|float"):
        arm([text])


def test_fault_points_come_from_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings().fault_points == ()
    monkeypatch.setenv("CORELANE_FAULT_POINTS", "submit.accepted:0.25, feed.fed:1")
    assert arm(Settings().fault_points) == {"submit.accepted": 0.25, "feed.fed": 1.0}


def test_bad_fault_points_stop_a_process_before_it_begins() -> None:
    with pytest.raises(ValueError, match="not a fault point"):
        Settings(fault_points="submit.accepted")
