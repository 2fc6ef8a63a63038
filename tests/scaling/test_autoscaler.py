"""The autoscaler of `corelane serve`: cores follow a step of load, the last one stops when nothing is left to do."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from corelane.engine.cores import cpu_slots
from corelane.tasks.question_answering.wire import Question
from tests.integration.conftest import Fleet, start_fleet, stop_fleet
from tests.tools.waiting import eventually

#: Cores of the null engine that take their time, and go soon when they are not needed.
SETTINGS = {
    "CORELANE_TARGET": "null",
    "CORELANE_NULL_BATCH_S": "0.2",
    "CORELANE_SCALE_BACKLOG_S": "2",
    "CORELANE_SCALE_IN_S": "2",
}

SERVING = ("idle", "busy")

CORES = ("testhost/0", "testhost/1")

#: Jobs of the step, of the most items: work for minutes, so that cores can come however busy the machine is.
JOBS, ITEMS = 8, 10_000

#: Items whose answers are looked at.
ASKED = 400


@pytest.fixture(scope="module")
def scaled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    if len(cpu_slots()) < 2:
        pytest.skip("this machine has one CPU, and so one core")
    folder = tmp_path_factory.mktemp("scaled")
    fleet = start_fleet(folder, folder, "--no-flower", "--min-cores", "0", "--max-cores", "2", **SETTINGS)
    yield fleet
    assert stop_fleet(fleet) == 0, fleet.log.read_text(errors="replace")[-4000:]


def serving(fleet: Fleet) -> int:
    """Count the cores that answer."""
    return sum(core["state"] in SERVING for core in fleet.states().values())


def wait_until_all_stopped(fleet: Fleet) -> None:
    eventually(
        lambda: {name: core["state"] for name, core in fleet.states().items()} == dict.fromkeys(CORES, "stopped")
    )


@pytest.mark.timeout(300)
def test_cores_follow_a_step_of_load_and_the_last_one_stops_when_idle(scaled: Fleet, tmp_path: Path) -> None:
    wait_until_all_stopped(scaled)
    assert scaled.api.get("/readyz").json()["cores"] == 0
    items = [Question(question="What is it?", context=f"It is number {n}.") for n in range(ITEMS)]
    with scaled.client() as client:
        assert client.scaling().desired == 0
        # The first question starts a core.
        assert client.wait(client.submit(items[:1]).id).status == "succeeded"
        assert serving(scaled) <= 1
        jobs = [client.submit(items).id for _ in range(JOBS)]
        eventually(lambda: serving(scaled) == 2)
        assert client.scaling().desired >= 2
        eventually(lambda: client.scaling().running == 2)
        # One core is killed as its work is taken away: what it held is done by others, once.
        mine = client.submit(items[:ASKED], priority="high")
        os.kill(next(core["pid"] for core in scaled.states().values() if core["state"] == "busy"), signal.SIGKILL)
        for job in jobs:
            client.cancel(job)
        assert [result.index for result in client.iter_results(mine.id)] == list(range(ASKED))
        wait_until_all_stopped(scaled)
        eventually(lambda: client.scaling().stopped == list(CORES) and client.scaling().cores == 0)
        # The overview may be a second older.
        eventually(
            lambda: (
                [(core.name, core.state) for core in client.overview().cores] == [(core, "stopped") for core in CORES]
            )
        )
        assert client.overview().troubles == []
        marks = [mark.text for mark in client.history().marks if mark.kind == "scale"]
        assert any(text.startswith("testhost/1 is started: ") for text in marks)
        assert any(text.startswith("testhost/0 is stopped: 0 wanted") for text in marks)
    text = scaled.api.get("/metrics").text
    assert "\ncorelane_desired_cores 0.0\n" in text
    assert "\ncorelane_core_up{" not in text
    assert "stopped by the autoscaler" in scaled.api.get("/console/").text
