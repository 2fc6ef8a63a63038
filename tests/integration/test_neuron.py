"""`corelane serve` on Neuron cores (their stand-in): every kind of error has its outcome, and nothing is lost by it.

One fleet with the two cores of an inf2, the second held by another process when it starts. The tests go from faults
that pass to the one that takes a core away, and give that core another chance at the end.
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from corelane.artifacts.manifest import MANIFEST_NAME, TOKENIZER_NAME, Artifact
from corelane.client import Client
from corelane.domain.jobs import Result
from corelane.metrics.liveness import HealthProbe, judge, read_liveness
from corelane.tasks.question_answering.wire import Question
from tests.monitoring.prometheus import prometheus
from tests.monitoring.queries import DEVICE_PANELS
from tests.tools.fleet import Fleet, parent_of, start_fleet
from tests.tools.neuron import STAND_IN, Machine, inject, neuron_environment
from tests.tools.waiting import eventually

pytestmark = pytest.mark.neuron

#: A word of the tiny model; where it is read, faults may strike.
POISON = "paris"

HOLD_A_CORE = "import neuron_machine as m, time; print(m.take_core(m.folder(), 1), flush=True); time.sleep(600)"


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save an inf2 with one device."""
    return Machine("inf2").save(tmp_path_factory.mktemp("neuron") / "machine")


@pytest.fixture(scope="module")
def holder(machine: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a process of somebody else that has the second core."""
    env = dict(os.environ) | neuron_environment(machine)
    process = subprocess.Popen([sys.executable, "-c", HOLD_A_CORE], env=env, stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout as said:
        assert said.readline().strip().isdigit()
    yield process
    process.kill()
    process.wait()


@pytest.fixture(scope="module")
def neuron_fleet(
    machine: Path,
    holder: "subprocess.Popen[bytes]",
    neuron_artifacts: dict[str, Artifact],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Fleet]:
    folder, artifact = tmp_path_factory.mktemp("neuron-fleet"), neuron_artifacts["inf2"]
    log = folder / "serve.log"

    def free_the_core() -> None:
        eventually(lambda: log.exists() and b"core_waits" in log.read_bytes())
        holder.kill()
        holder.wait()

    freeing = threading.Thread(target=free_the_core, daemon=True)
    freeing.start()
    settings = {
        "CORELANE_TARGET": "inf2",
        "CORELANE_MODEL": "tiny-qa",
        "CORELANE_EXEC_TIMEOUT_S": "1",
        "CORELANE_MAX_ATTEMPTS": "2",
        # The workers of a host share their monitor there, and other tests are on other machines.
        "TMPDIR": str(tmp_path_factory.mktemp("shared")),
    }
    env = settings | neuron_environment(machine)
    fleet = start_fleet(folder, artifact.path.parent.parent.parent, "--cores", "2", "--no-flower", **env)
    freeing.join()
    yield fleet
    assert fleet.stop() == 0


@pytest.fixture(autouse=True)
def no_faults(machine: Path) -> Iterator[None]:
    """End the faults that a test has injected."""
    yield
    for fault in (machine / "faults").iterdir():
        fault.unlink()


@pytest.fixture(scope="module")
def poison_id(neuron_artifacts: dict[str, Artifact]) -> int:
    number = Tokenizer.from_file(str(neuron_artifacts["inf2"].file(TOKENIZER_NAME))).token_to_id(POISON)
    assert number is not None
    return number


def items(count: int, poisoned: int | None = None, longer: int = 0) -> list[Question]:
    """Return questions, the same at each call; with ``longer`` other ones."""
    where = ["berlin"] * count
    if poisoned is not None:
        where[poisoned] = POISON
    return [
        Question(
            id=f"n{n}",
            question="where was ada ?",
            context=f"ada was in {place} . " + "the tower is tall . " * (n % 3 + longer),
        )
        for n, place in enumerate(where)
    ]


def answer(fleet: Fleet, sent: list[Question]) -> list[Result]:
    with Client(fleet.url) as client:
        results = list(client.iter_results(client.submit(sent).id))
    assert [result.id for result in results] == [item.id for item in sent]
    return results


def core(fleet: Fleet, index: int) -> dict:
    return fleet.states()[f"testhost/{index}"]


def environment(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(line.split("=", 1) for line in lines if "=" in line)


def test_core_that_another_process_holds_is_waited_for_in_new_processes(
    neuron_fleet: Fleet, holder: "subprocess.Popen[bytes]"
) -> None:
    neuron_fleet.wait_whole()
    [first, *_] = [line for line in neuron_fleet.log.read_text().splitlines() if "core_waits" in line]
    assert "testhost/1" in first
    assert f"{holder.pid} (" in first
    assert [core(neuron_fleet, index)["restarts"] for index in (0, 1)] == [0, 0]


def test_cores_tell_their_use_and_memory_by_the_hosts_one_monitor(neuron_fleet: Fleet) -> None:
    neuron_fleet.wait_whole()
    eventually(lambda: all(core(neuron_fleet, index)["device"].get("utilization", 0) > 0.8 for index in (0, 1)))
    assert core(neuron_fleet, 1)["device"]["memory_bytes"] > 60_000_000
    assert core(neuron_fleet, 1)["device"]["errors"] == 0
    assert core(neuron_fleet, 1)["device"]["host_vcpu"] == core(neuron_fleet, 1)["device"]["runtime_vcpu"] == 0.2632
    told = neuron_fleet.api.get("/metrics").text
    assert 'corelane_core_device_utilization_ratio{core="testhost/0"} 0.89' in told
    assert 'corelane_core_device_errors_total{core="testhost/0",kind="hardware"} 0' in told
    assert 'corelane_core_memory_bytes{core="testhost/1",kind="device"} 6' in told


def test_boards_show_the_errors_of_devices(neuron_fleet: Fleet, tmp_path: Path) -> None:
    with prometheus(tmp_path, neuron_fleet.url.removeprefix("http://")) as running:
        eventually(lambda: not running.without_data(DEVICE_PANELS))


def test_each_worker_has_one_core_by_its_environment_and_nobody_else_has_it(neuron_fleet: Fleet) -> None:
    for index in (0, 1):
        pid = core(neuron_fleet, index)["pid"]
        env = environment(pid)
        assert env["NEURON_RT_VISIBLE_CORES"] == str(index)
        assert env["NEURON_PROCESS_TAG"] == f"corelane-nc{index}"
        assert env["NEURON_RT_EXEC_TIMEOUT"] == "1"
        assert env["NEURON_RT_DBG_DUMP_INPUTS_ON_ERR"] == "0"
        assert "neuron" not in Path(f"/proc/{parent_of(pid)}/maps").read_text().replace(str(STAND_IN), "")
    users = subprocess.run(
        [STAND_IN / "bin" / "neuron-ls", "-j"],
        env=dict(os.environ) | neuron_environment(Path(environment(pid)["NEURON_STAND_IN"])),
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    assert all(f'"pid": {core(neuron_fleet, index)["pid"]}' in users for index in (0, 1))


@pytest.mark.parametrize("status", [1002, 1003, 1006])
def test_error_of_the_job_reaches_its_item_and_no_other(
    neuron_fleet: Fleet, machine: Path, poison_id: int, status: int
) -> None:
    inject(machine, on="execute", status=status, token=poison_id, times=1000)
    pids = [core(neuron_fleet, index)["pid"] for index in (0, 1)]
    results = answer(neuron_fleet, items(12, poisoned=5))
    assert [result.id for result in results if result.status == "failed"] == ["n5"]
    assert results[5].error is not None
    assert results[5].error.code == "run_failed"
    assert f"status {status}" in results[5].error.detail
    assert [core(neuron_fleet, index)["pid"] for index in (0, 1)] == pids


@pytest.mark.parametrize("status", [7, 1005])
def test_error_that_passes_is_tried_again_in_place(neuron_fleet: Fleet, machine: Path, status: int) -> None:
    inject(machine, on="execute", status=status, times=3)
    pids = [core(neuron_fleet, index)["pid"] for index in (0, 1)]
    assert all(result.status == "succeeded" for result in answer(neuron_fleet, items(12)))
    assert [core(neuron_fleet, index)["pid"] for index in (0, 1)] == pids


def test_pass_that_hangs_is_ended_its_process_replaced_and_its_work_returned(
    neuron_fleet: Fleet, machine: Path
) -> None:
    inject(machine, on="execute", hang_s=60, core=0)
    before = core(neuron_fleet, 0)
    worker = parent_of(before["pid"])
    assert all(result.status == "succeeded" for result in answer(neuron_fleet, items(100)))
    eventually(lambda: core(neuron_fleet, 0)["pid"] not in (None, before["pid"]))
    neuron_fleet.wait_whole()
    after = core(neuron_fleet, 0)
    assert parent_of(after["pid"]) == worker
    assert after["restarts"] == before["restarts"] + 1
    assert "core_restarting" in neuron_fleet.log.read_text()


def test_item_that_breaks_every_process_fails_alone_and_the_cores_stay_in_service(
    neuron_fleet: Fleet, machine: Path, poison_id: int
) -> None:
    inject(machine, on="execute", status=101, token=poison_id, times=1000)
    results = answer(neuron_fleet, items(12, poisoned=5))
    assert [result.id for result in results if result.status == "failed"] == ["n5"]
    assert results[5].error is not None
    assert results[5].error.code == "worker_lost"
    eventually(lambda: sum(core(neuron_fleet, index)["restarts"] or 0 for index in (0, 1)) == 3)
    neuron_fleet.wait_whole()


@pytest.fixture(scope="module")
def later(neuron_artifacts: dict[str, Artifact]) -> Iterator[str]:
    """Another version, whose files take a gigabyte of the device by its manifest."""
    artifact = neuron_artifacts["inf2"]
    version = artifact.path.parent.with_name("0123456789ab")
    shutil.copytree(artifact.path, version / "inf2")
    buckets = [bucket.model_copy(update={"bytes": 10**9 // 2}) for bucket in artifact.manifest.buckets]
    changes = {"version": version.name, "buckets": buckets, "created_at": "2020-01-01T00:00:00Z", "verified": False}
    manifest = artifact.manifest.model_copy(update=changes)
    (version / "inf2" / MANIFEST_NAME).write_text(manifest.model_dump_json())
    yield manifest.version_id
    shutil.rmtree(version)


def test_runtime_lost_while_a_version_is_loaded_beside_others_is_replaced_and_nothing_fails(
    neuron_fleet: Fleet, machine: Path, later: str
) -> None:
    inject(machine, on="load", status=5, core=0)
    before = core(neuron_fleet, 0)
    with Client(neuron_fleet.url) as client:
        client.load_model(later)
        assert all(result.status == "succeeded" for result in answer(neuron_fleet, items(100)))
        eventually(lambda: all(later in core(neuron_fleet, index)["versions"] for index in (0, 1)))
        [shown] = [model for model in client.models() if model["id"] == later]
        job = client.submit(items(4), model=later, wait_s=30)
    assert (shown["verified"], job.counts.succeeded) == (False, 4)
    after = core(neuron_fleet, 0)
    assert after["pid"] != before["pid"]
    assert after["restarts"] == before["restarts"] + 1
    assert len(after["versions"]) == 2
    assert "model_unverified" in neuron_fleet.log.read_text()


def test_unloaded_version_has_its_processes_replaced_as_only_that_gives_memory_back_whole(
    neuron_fleet: Fleet, later: str
) -> None:
    before = [core(neuron_fleet, index) for index in (0, 1)]
    with Client(neuron_fleet.url) as client:
        client.unload_model(later)
    eventually(lambda: all(core(neuron_fleet, index)["pid"] not in (None, before[index]["pid"]) for index in (0, 1)))
    neuron_fleet.wait_whole()
    assert all(result.status == "succeeded" for result in answer(neuron_fleet, items(20)))
    after = [core(neuron_fleet, index) for index in (0, 1)]
    assert [now["restarts"] for now in after] == [then["restarts"] for then in before]
    assert all(later not in now["versions"] for now in after)


def test_broken_core_leaves_service_says_why_and_its_work_is_done_by_the_other(
    neuron_fleet: Fleet, machine: Path
) -> None:
    inject(machine, on="execute", status=1202, core=0)
    assert all(result.status == "succeeded" for result in answer(neuron_fleet, items(100)))
    eventually(lambda: core(neuron_fleet, 0)["state"] == "out_of_service")
    broken = core(neuron_fleet, 0)
    assert "1202 (HW_ERR_NC_UE" in broken["reasons"][0]
    assert "instance" in broken["reasons"][0]
    assert broken["versions"] == []
    metrics = neuron_fleet.api.get("/metrics").text
    assert 'corelane_core_out_of_service{core="testhost/0"} 1.0' in metrics
    assert 'corelane_core_out_of_service{core="testhost/1"} 0.0' in metrics
    assert neuron_fleet.api.get("/readyz").status_code == 200


def test_core_out_of_service_stays_so_takes_nothing_and_lets_go_of_the_device(
    neuron_fleet: Fleet, machine: Path
) -> None:
    broke = int((machine / "cores" / "0").read_text())
    eventually(lambda: core(neuron_fleet, 0)["pid"] not in (None, broke))
    eventually(lambda: core(neuron_fleet, 0)["state"] == "out_of_service")
    # What the other core did before is counted by a heartbeat.
    eventually(lambda: core(neuron_fleet, 1)["state"] == "idle")
    last = core(neuron_fleet, 1)["last_beat_at"]
    eventually(lambda: core(neuron_fleet, 1)["last_beat_at"] != last)
    settled, before = core(neuron_fleet, 0), core(neuron_fleet, 1)["items"]
    assert all(result.status == "succeeded" for result in answer(neuron_fleet, items(60, longer=3)))
    eventually(lambda: core(neuron_fleet, 1)["items"] == before + 60)
    now = core(neuron_fleet, 0)
    passing = {"last_beat_at": "", "memory_bytes": 0, "device": {}}
    assert now | passing == settled | passing
    assert (now["state"], now["items"]) == ("out_of_service", 0)
    # Nothing restarts its container in vain, and its state says why it is not ready.
    signs = [sign for sign in read_liveness(neuron_fleet.data / "health") if sign.part == "testhost/0"]
    assert [judge(question, signs, time.monotonic()) for question in (HealthProbe.STARTUP, HealthProbe.LIVE)] == [
        None
    ] * 2
    assert "testhost/0 is out_of_service: " in (why := judge(HealthProbe.READY, signs, time.monotonic()) or "")
    assert "1202 (HW_ERR_NC_UE" in why
    assert int((machine / "cores" / "0").read_text()) == broke
    assert not Path(f"/proc/{broke}").exists()


def test_restarting_its_worker_gives_the_core_another_chance(neuron_fleet: Fleet) -> None:
    worker = parent_of(core(neuron_fleet, 0)["pid"])
    os.kill(worker, signal.SIGTERM)
    neuron_fleet.wait_whole()
    assert core(neuron_fleet, 0)["restarts"] == 0
    assert all(result.status == "succeeded" for result in answer(neuron_fleet, items(20)))
