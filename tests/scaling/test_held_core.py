"""A Neuron core that its predecessor still holds when work brings it back: the way from zero that failed elsewhere
(https://github.com/aws-neuron/aws-neuron-sdk/issues/1338).
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from corelane.artifacts.manifest import Artifact
from corelane.tasks.question_answering.wire import Question
from tests.integration.conftest import start_fleet, stop_fleet
from tests.tools.neuron import Machine, neuron_environment
from tests.tools.waiting import eventually

pytestmark = pytest.mark.neuron

#: The worker that was stopped lets go of the core as its process ends, a moment after its good-bye.
HOLD_THE_CORE = """
import neuron_machine as m, time
while (held := m.take_core(m.folder(), 0)) is None:
    time.sleep(0.05)
print(held, flush=True)
time.sleep(600)
"""

ITEM = Question(question="where was ada ?", context="ada was in berlin .")


@contextmanager
def held(machine: Path) -> Iterator[int]:
    """Hold the first core, as a predecessor that ends late; yield the process that does."""
    env = dict(os.environ) | neuron_environment(machine)
    process = subprocess.Popen([sys.executable, "-c", HOLD_THE_CORE], env=env, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        with process.stdout as said:
            assert said.readline().strip().isdigit()
        yield process.pid
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_core_that_is_still_held_when_work_brings_it_back_is_waited_for(
    neuron_artifacts: dict[str, Artifact], tmp_path: Path
) -> None:
    machine = Machine("inf2").save(tmp_path / "machine")
    settings = {
        "CORELANE_TARGET": "inf2",
        "CORELANE_MODEL": "tiny-qa",
        "CORELANE_SCALE_IN_S": "1",
        "TMPDIR": str(tmp_path),
    }
    data, root = tmp_path / "data", neuron_artifacts["inf2"].path.parent.parent.parent
    scale = ("--cores", "1", "--min-cores", "0", "--no-flower")
    data.mkdir()
    fleet = start_fleet(data, root, *scale, **settings, **neuron_environment(machine))

    def state() -> str:
        return str(fleet.states().get("testhost/0", {}).get("state"))

    try:
        eventually(lambda: state() == "stopped")
        assert fleet.api.get("/readyz").is_success
        with held(machine) as holder, fleet.client() as client:
            job = client.submit([ITEM])
            eventually(lambda: state() == "waiting")
            assert f"{holder} (" in fleet.states()["testhost/0"]["reasons"][0]
            # New processes try it, and none of them answers.
            first = fleet.states()["testhost/0"]["pid"]
            eventually(lambda: fleet.states().get("testhost/0", {}).get("pid") not in (None, first))
            eventually(lambda: state() == "waiting")
            assert fleet.api.get("/readyz").status_code == 503
            assert not client.get(job.id).status.is_final
        with fleet.client() as client:
            assert client.wait(job.id).status == "succeeded"
            assert client.get(job.id).counts.succeeded == 1
        eventually(lambda: state() == "stopped")
        assert fleet.process.poll() is None
    finally:
        assert stop_fleet(fleet) == 0
