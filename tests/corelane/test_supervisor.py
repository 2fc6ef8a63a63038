"""The supervisor with real processes: who comes back, who is given up, where each can be found."""

import os
import signal
import sys
from datetime import timedelta
from pathlib import Path

import orjson
import pytest

from corelane.cli.folders import PARTS_FILE
from corelane.cli.supervisor import (
    LAUNCHES_S,
    MOST_LAUNCHES,
    RELAUNCH_PAUSES_S,
    SLOW_S,
    STABLE_S,
    FleetPart,
    Level,
    PartHistory,
    Supervisor,
    describe_status,
)
from tests.tools.waiting import eventually_async

pytestmark = pytest.mark.anyio

SLEEPER = (sys.executable, "-c", "import time; time.sleep(600)")

#: Starts a process of its own and notes its id.
PARENT = """
import subprocess, sys, time
from pathlib import Path
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
Path(sys.argv[1]).write_text(f"{child.pid}.")
time.sleep(600)
"""

#: Exit statuses of those that were killed, and of those that ended by a fault of their own.
KILLED, BROKE = -signal.SIGKILL, 1

#: A life that came up, and ended from outside.
WELL = (True, KILLED, STABLE_S + 1.0)


def lived(*lives: tuple[bool, int, float]) -> PartHistory:
    """Play a part after some lives: whether it came up, its status, its length in seconds."""
    history = PartHistory()
    for came_up, status, seconds in lives:
        history.launched()
        if came_up:
            history.came_up()
        history.ended(describe_status(status), seconds, by_itself=status == BROKE)
    return history


@pytest.mark.parametrize(
    ("lives", "is_hopeless", "pause_s"),
    [
        ([(True, KILLED, 1.0)] * 100, False, RELAUNCH_PAUSES_S[0]),
        ([(False, BROKE, 0.1)], False, RELAUNCH_PAUSES_S[0]),
        ([(False, BROKE, 0.1)] * 2, True, RELAUNCH_PAUSES_S[1]),
        ([WELL, *[(False, BROKE, 0.1)] * 2], False, RELAUNCH_PAUSES_S[1]),
        ([WELL, *[(False, BROKE, 0.1)] * len(RELAUNCH_PAUSES_S)], True, RELAUNCH_PAUSES_S[-1]),
        ([(True, BROKE, 1.0)] * len(RELAUNCH_PAUSES_S), True, RELAUNCH_PAUSES_S[-1]),
        ([(False, KILLED, 0.1)] * 100, False, RELAUNCH_PAUSES_S[-1]),
    ],
)
def test_part_is_given_up_by_how_its_lives_ended(
    lives: list[tuple[bool, int, float]], is_hopeless: bool, pause_s: float
) -> None:
    history = lived(*lives)
    assert (history.is_hopeless(first_tries=2), history.pause_s) == (is_hopeless, pause_s)


def test_part_is_in_trouble_until_it_is_up_and_has_been_for_a_while() -> None:
    history = lived((False, BROKE, 0.1))
    history.launched()
    now = history.launched_at
    assert history.issue(now) == "it does not come up, and was launched 2 times; the last time it ended with status 1"
    history.came_up()
    assert history.issue(now + timedelta(seconds=STABLE_S - 1)) is not None
    assert history.issue(now + timedelta(seconds=STABLE_S)) is None


def test_part_that_cannot_be_launched_is_tried_after_growing_pauses() -> None:
    history = lived((True, BROKE, 1.0))
    for pause_s in (*RELAUNCH_PAUSES_S[1:], RELAUNCH_PAUSES_S[-1]):
        history.ended("could not be launched: no memory", 0, by_itself=False)
        assert (history.pause_s, history.is_hopeless(2)) == (pause_s, False)
    assert "the last time it could not be launched: no memory" in (history.issue(history.launched_at) or "")


def test_part_that_was_just_launched_is_in_no_trouble_until_it_takes_long() -> None:
    history = PartHistory()
    history.launched()
    assert history.issue(history.launched_at + timedelta(seconds=SLOW_S - 1)) is None
    assert history.issue(history.launched_at + timedelta(seconds=SLOW_S + 1)) == "it is not up 61 s after its launch"


def test_part_that_ends_again_and_again_is_in_trouble_though_each_life_is_long() -> None:
    history = lived(*[(True, BROKE, STABLE_S + 1.0)] * MOST_LAUNCHES)
    history.launched()
    history.came_up()
    assert "does not stay up" in (history.issue(history.launched_at) or "")
    assert history.issue(history.launched_at + timedelta(seconds=LAUNCHES_S)) is None


async def always(_: int) -> bool:
    return True


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def supervisor(told: list[str], tmp_path: Path) -> Supervisor:
    def say(text: str, level: Level = "info") -> None:
        told.append(text)

    return Supervisor(say, lambda part, line: told.append(f"{part}: {line}"), tmp_path / PARTS_FILE)


def found(folder: Path, name: str) -> dict:
    return orjson.loads((folder / PARTS_FILE).read_bytes())["parts"][name]


async def test_killed_part_runs_again_under_a_process_id_that_can_be_found(
    supervisor: Supervisor, told: list[str], tmp_path: Path
) -> None:
    await supervisor.start(FleetPart("redis", SLEEPER, os.environ, first_tries=1, is_up=always))
    pids: set[int] = set()
    for _ in range(4):
        await eventually_async(
            lambda: found(tmp_path, "redis")["pid"] not in pids and found(tmp_path, "redis")["is_up"]
        )
        pids.add(pid := found(tmp_path, "redis")["pid"])
        os.kill(pid, signal.SIGKILL)
    assert len(pids) == 4
    assert not supervisor.is_over
    assert "redis was ended by SIGKILL; it is launched again in 0.2 s" in "\n".join(told)
    await supervisor.stop([("redis",)])
    assert not (tmp_path / PARTS_FILE).exists()


async def test_needed_part_that_cannot_start_ends_the_service_with_its_reason(supervisor: Supervisor) -> None:
    broken = (sys.executable, "-c", "raise SystemExit(3)")
    await supervisor.start(FleetPart("api", broken, os.environ, first_tries=2))
    assert await supervisor.wait(60)
    assert supervisor.failure is not None
    assert supervisor.failure.startswith("api keeps failing: it ended with status 3, 2 times in a row")
    await supervisor.stop([])


async def test_part_that_is_not_needed_is_tried_on(supervisor: Supervisor, told: list[str], tmp_path: Path) -> None:
    broken = (sys.executable, "-c", "raise SystemExit(3)")
    await supervisor.start(FleetPart("flower", broken, os.environ, needed=False, first_tries=1))
    await eventually_async(lambda: found(tmp_path, "flower")["launches"] == 3)
    assert not supervisor.is_over
    assert "flower ended with status 3; it is launched again in 1 s" in "\n".join(told)
    await supervisor.stop([])


async def test_what_a_killed_part_leaves_behind_is_killed_and_holds_up_nothing(
    supervisor: Supervisor, tmp_path: Path
) -> None:
    """A worker's child that is frozen holds its core, and the pipe for its lines."""
    note = tmp_path / "child"
    await supervisor.start(FleetPart("core0", (sys.executable, "-c", PARENT, str(note)), os.environ, is_up=always))
    await eventually_async(lambda: note.exists() and note.read_text().endswith("."))
    left = int(note.read_text()[:-1])
    os.kill(left, signal.SIGSTOP)
    await eventually_async(lambda: found(tmp_path, "core0")["is_up"])
    os.kill(found(tmp_path, "core0")["pid"], signal.SIGKILL)
    await eventually_async(lambda: found(tmp_path, "core0")["launches"] == 2)
    await eventually_async(lambda: is_gone(left))
    await supervisor.stop([])


async def test_stopped_part_is_ended_in_an_orderly_way(supervisor: Supervisor, told: list[str], tmp_path: Path) -> None:
    await supervisor.start(FleetPart("keeper", SLEEPER, os.environ, needed=False))
    os.kill(found(tmp_path, "keeper")["pid"], signal.SIGSTOP)
    await supervisor.stop([("keeper",)])
    assert "did not stop" not in "\n".join(told)


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


async def test_lines_of_a_part_are_shown_with_its_name(supervisor: Supervisor, told: list[str]) -> None:
    talker = (sys.executable, "-c", "import sys; print('to whom it may', file=sys.stderr); print('concern')")
    await supervisor.start(FleetPart("flower", talker, os.environ, needed=False))
    await eventually_async(lambda: {"flower: to whom it may", "flower: concern"} <= set(told))
    await supervisor.stop()
