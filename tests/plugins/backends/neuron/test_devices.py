"""Finding Neuron cores: what neuron-ls says, what is visible, and which worker gets which."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.artifacts.manifest import Artifact
from corelane.engine.cores import core_slot, core_slots, only_slot
from corelane.errors import SetupError
from corelane.plugins.backends.neuron import devices as neuron_devices
from corelane.plugins.backends.neuron.chips import CHIPS, CORE_OVERHEAD_BYTES
from corelane.plugins.backends.neuron.cores import cores_of
from corelane.plugins.backends.neuron.devices import (
    Device,
    find_devices,
    groups,
    parse_cores,
    parse_devices,
    renumber,
    show_cores,
)
from corelane.plugins.backends.settings import BackendsFields
from corelane.settings import Settings
from tests.tools.neuron import Machine, neuron_process

#: One trn1.2xlarge, from AWS' documents.
TRN1 = """[{"neuron_device":0,"bdf":"00:1e.0","cpu_affinity":"0-7","numa_node":"-1","connected_to":null,"nc_count":2,
"memory_size":34359738368,"neuroncore_ids":[0,1],"neuron_processes":[]}]"""


def slots(devices: list[Device], target: str, size: int = 1, **env: str) -> list[tuple[int, str]]:
    found = cores_of(devices, target, BackendsFields(), size=size, environment=env)
    return [(core.index, core.environment["NEURON_RT_VISIBLE_CORES"]) for core in found]


def test_json_of_the_documents_is_read() -> None:
    [device] = parse_devices(TRN1, CHIPS["trn1"], 1)
    assert device == Device(0, (0, 1), 34359738368, 1, frozenset(range(8)))
    assert device.core_bytes == 34359738368 // 2 - CORE_OVERHEAD_BYTES


def test_what_older_tools_leave_out_is_worked_out_and_who_uses_a_device_is_known() -> None:
    raw = [
        {"neuron_device": 3, "nc_count": 4, "neuron_processes": [{"pid": 7, "command": "python x"}]},
        {"neuron_device": 2, "nc_count": 4, "neuron_processes": None, "connected_to": [3], "more": 1},
    ]
    devices = parse_devices(json.dumps(raw), CHIPS["inf1"], 1)
    assert [device.cores for device in devices] == [(8, 9, 10, 11), (12, 13, 14, 15)]
    assert devices[1].users == ((7, "python x"),)
    assert devices[0].memory_bytes == CHIPS["inf1"].memory_bytes


@pytest.mark.parametrize(("logical", "cores"), [(1, 8), (2, 4)])
def test_tool_that_counts_other_logical_cores_than_this_process_is_converted(logical: int, cores: int) -> None:
    raw = [{"neuron_device": 1, "nc_count": 4, "logical_neuroncore_config": 2, "memory_size": 96 * 1024**3}]
    [device] = parse_devices(json.dumps(raw), CHIPS["trn2"], logical)
    assert device.cores == tuple(range(cores, 2 * cores))


@pytest.mark.parametrize("text", ["", "{}", "[]", "[1]", '[{"neuron_device": 0}]', "no JSON"])
def test_output_that_is_no_list_of_devices_is_refused(text: str) -> None:
    with pytest.raises(SetupError, match="neuron-ls"):
        parse_devices(text, CHIPS["inf2"], 1)


def test_each_core_has_a_worker_named_by_its_number_on_the_host() -> None:
    devices = [Device(number, (2 * number, 2 * number + 1), 2**35, 1) for number in (4, 5)]
    assert slots(devices, "inf2") == [(8, "8"), (9, "9"), (10, "10"), (11, "11")]
    assert slots(renumber(devices), "inf2") == [(0, "0"), (1, "1"), (2, "2"), (3, "3")]


def test_cores_that_are_not_visible_here_are_left_alone() -> None:
    devices = [Device(number, (2 * number, 2 * number + 1), 2**35, 1) for number in (0, 1)]
    assert slots(devices, "inf2", NEURON_RT_VISIBLE_CORES="1-2") == [(1, "1"), (2, "2")]


def test_pipeline_takes_groups_of_neighbours() -> None:
    devices = [Device(number, tuple(range(4 * number, 4 * number + 4)), 2**33, 1) for number in (0, 1, 3)]
    assert slots(devices, "inf1", size=4) == [(0, "0-3"), (1, "4-7"), (3, "12-15")]
    assert slots(devices, "inf1", size=8) == [(0, "0-7")]
    assert slots(devices, "inf1", size=16) == []


def test_environment_says_what_the_runtime_must_know_before_it_is_loaded() -> None:
    device = Device(0, (0, 1, 2, 3), 96 * 1024**3, 2, frozenset({1, 2, 99}))
    [core, *_] = cores_of([device], "trn2", BackendsFields(exec_timeout_s=12), environment={})
    assert core.cpus == frozenset({1, 2, 99})
    assert (
        core.environment.items()
        >= {
            "NEURON_RT_VISIBLE_CORES": "0",
            "NEURON_RT_EXEC_TIMEOUT": "12",
            "NEURON_PROCESS_TAG": "corelane-nc0",
            "NEURON_LOGICAL_NC_CONFIG": "2",
            "NEURON_RT_DBG_DUMP_INPUTS_ON_ERR": "0",
            "CORELANE_DEVICE_MEMORY_BYTES": str(24 * 1024**3 - 2 * CORE_OVERHEAD_BYTES),
        }.items()
    )


@pytest.mark.parametrize(
    ("text", "cores"), [("2", (2,)), ("0-3", (0, 1, 2, 3)), ("4,5", (4, 5)), ("0-1,2", (0, 1, 2)), ("51", (51,))]
)
def test_visible_cores_are_read(text: str, cores: tuple[int, ...]) -> None:
    assert parse_cores(text) == cores


@pytest.mark.parametrize("text", ["3,5,6", "0,2", "2,1", "1,1", "3-1", "", "a", "0-", "-1"])
def test_visible_cores_that_are_no_neighbours_in_order_are_refused(text: str) -> None:
    with pytest.raises(SetupError, match="NEURON_RT_VISIBLE_CORES"):
        parse_cores(text)


@given(st.integers(0, 200), st.integers(1, 64))
def test_cores_are_shown_as_they_are_read(first: int, count: int) -> None:
    cores = tuple(range(first, first + count))
    assert parse_cores(show_cores(cores)) == cores


@given(st.sets(st.integers(0, 60)), st.integers(1, 8))
def test_groups_are_neighbours_and_share_no_core(cores: set[int], size: int) -> None:
    found = groups(sorted(cores), size)
    assert all(group == tuple(range(group[0], group[0] + size)) for group in found)
    used = [core for group in found for core in group]
    assert len(used) == len(set(used))
    assert set(used) <= cores


@pytest.mark.parametrize("chip", ["trn2", "trn3"])
def test_tool_lists_the_machine_and_names_who_has_its_cores(tmp_path: Path, chip: str) -> None:
    with neuron_process(tmp_path, Machine(chip, devices=(0, 1)), None) as place:
        from neuron_machine import take_core

        assert [device.cores for device in find_devices(chip, {})] == [(0, 1, 2, 3), (4, 5, 6, 7)]
        taken = take_core(place, 5)
        assert taken is not None
        assert [len(device.users) for device in find_devices(chip, {})] == [0, 1]
        assert find_devices(chip, {})[1].users[0][0] == os.getpid()
        os.close(taken)


def test_machine_without_a_device_says_so(tmp_path: Path) -> None:
    with neuron_process(tmp_path, Machine("inf2"), None) as place:
        (place / "machine.json").unlink()
        with pytest.raises(SetupError, match=r"neuron-ls says: .*is the driver loaded"):
            core_slots(Settings(target="inf2"))


def test_without_the_tool_the_device_files_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neuron_devices, "DEVICE_FILES", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError, match="neuron-ls is not installed"):
        find_devices("inf2", {})
    for name in ("neuron3", "neuron10", "neuron_x"):
        (tmp_path / name).touch()
    assert [(device.number, device.cores) for device in find_devices("inf2", {})] == [(3, (6, 7)), (10, (20, 21))]
    assert [device.cores for device in find_devices("inf2", {}, "local")] == [(0, 1), (2, 3)]


def test_core_that_does_not_exist_and_a_pipeline_too_long_are_refused(
    tmp_path: Path, neuron_artifacts: dict[str, Artifact]
) -> None:
    root = neuron_artifacts["pipeline"].path.parent.parent.parent
    settings = Settings(target="inf1", model="tiny-qa", artifacts_dir=root)
    with neuron_process(tmp_path, Machine("inf1", devices=(0, 1)), None):
        assert core_slot(1, settings).environment["NEURON_RT_VISIBLE_CORES"] == "4-7"
        with pytest.raises(SetupError, match="this machine has 0, 1"):
            core_slot(2, settings)
    for visible in ("0-2", "9"):
        with (
            neuron_process(tmp_path / visible, Machine("inf1"), visible),
            pytest.raises(
                SetupError, match=f"4 neighbouring cores; of 4 here NEURON_RT_VISIBLE_CORES leaves {visible}"
            ),
        ):
            core_slots(settings)


def test_only_core_of_a_container_is_core_0_whatever_its_number_on_the_host(tmp_path: Path) -> None:
    settings = Settings(target="inf2")
    with neuron_process(tmp_path / "pod", Machine("inf2", devices=(6,)), "13"):
        slot = only_slot(settings)
        assert (slot.index, slot.environment["NEURON_RT_VISIBLE_CORES"]) == (0, "13")
    with (
        neuron_process(tmp_path / "host", Machine("inf2", devices=(6,)), None),
        pytest.raises(SetupError, match=r"2 cores \(12, 13\): give the container one"),
    ):
        only_slot(settings)


def test_logical_size_must_be_one_or_two() -> None:
    with pytest.raises(SetupError, match="must be 1 or 2"):
        find_devices("trn2", {"NEURON_LOGICAL_NC_CONFIG": "3"})
