"""`corelane serve` on a core of inf1 (its stand-in), in a device process of a Python without Corelane."""

import os
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from corelane.artifacts.manifest import Artifact
from corelane.client import Client
from corelane.tasks.question_answering.wire import Question
from tests.tools.fleet import Fleet, parent_of, start_fleet
from tests.tools.neuron import Machine, holder, inject, neuron_environment
from tests.tools.waiting import eventually

pytestmark = pytest.mark.neuron

QUESTIONS = 200


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save an inf1 with one device."""
    return Machine("inf1").save(tmp_path_factory.mktemp("neuron") / "machine")


@pytest.fixture(scope="module")
def inf1_fleet(
    machine: Path,
    neuron_artifacts: dict[str, Artifact],
    neuron_python: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Fleet]:
    settings = {
        "CORELANE_TARGET": "inf1",
        "CORELANE_MODEL": "tiny-qa",
        "CORELANE_NEURON_PYTHON": neuron_python,
        "TMPDIR": str(tmp_path_factory.mktemp("shared")),
    }
    root = neuron_artifacts["inf1"].path.parent.parent.parent
    folder = tmp_path_factory.mktemp("inf1-fleet")
    fleet = start_fleet(folder, root, "--cores", "1", "--no-flower", **settings, **neuron_environment(machine))
    yield fleet
    assert fleet.stop() == 0
    assert holder(machine, 0) is None


def device(machine: Path) -> int:
    """Return the process that holds the core, once there is one."""
    eventually(lambda: holder(machine, 0) is not None)
    return holder(machine, 0)


def has_answered(client: Client, job: str, count: int) -> bool:
    return client.get(job).counts.succeeded > count


def test_questions_are_answered_once_each_though_the_device_process_is_killed_twice(
    inf1_fleet: Fleet, machine: Path
) -> None:
    items = [
        Question(id=f"n{n}", question="where was ada ?", context=f"ada was in {'berlin ' * (n % 7 + 1)}. {n}")
        for n in range(QUESTIONS)
    ]
    # So that it does not end before it is killed.
    inject(machine, on="execute", hang_s=0.2, times=100_000)
    killed: list[int] = []
    with Client(inf1_fleet.url) as client:
        job = client.submit(items)
        for due in (QUESTIONS // 10, QUESTIONS // 2):
            eventually(partial(has_answered, client, job.id, due))
            inf1_fleet.wait_whole()  # a process that is killed while it loads counts against its model
            killed.append(device(machine))
            os.kill(killed[-1], signal.SIGKILL)
            eventually(lambda: holder(machine, 0) not in (None, *killed))
        results = list(client.iter_results(job.id))
    assert [result.id for result in results] == [item.id for item in items]
    assert {result.status for result in results} == {"succeeded"}
    inf1_fleet.wait_counted()
    told = inf1_fleet.api.get("/metrics").text
    [counted] = [line for line in told.splitlines() if line.startswith('corelane_items_total{outcome="succeeded"')]
    assert float(counted.split()[-1]) == QUESTIONS
    [core] = inf1_fleet.states().values()
    assert (core["restarts"], core["state"]) == (2, "idle")
    assert inf1_fleet.log.read_text().count("the device process was killed (signal 9)") >= 2


def test_device_process_has_the_core_of_its_worker_nothing_of_corelane_and_its_end(
    inf1_fleet: Fleet, machine: Path
) -> None:
    inf1_fleet.wait_whole()
    [core] = inf1_fleet.states().values()
    running = device(machine)
    assert parent_of(running) == core["pid"]
    environment = Path(f"/proc/{running}/environ").read_bytes().decode().split("\0")
    assert {"NEURON_RT_VISIBLE_CORES=0", "NEURON_PROCESS_TAG=corelane-nc0"} <= set(environment)
    assert "torch" not in Path(f"/proc/{core['pid']}/maps").read_text()
    os.kill(core["pid"], signal.SIGKILL)
    eventually(lambda: holder(machine, 0) not in (None, running))
    inf1_fleet.wait_whole()
    with Client(inf1_fleet.url) as client:
        assert client.submit(
            [Question(question="where was ada ?", context="ada was here .")], wait_s=30
        ).counts.succeeded
