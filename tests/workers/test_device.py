"""What a core's device tells of itself: by /proc, and by the stand-in's neuron-monitor."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from corelane.domain.overview import device_figures
from corelane.plugins.backends.neuron import reports
from corelane.plugins.backends.neuron.monitor import MonitorTotals, figures
from corelane.plugins.backends.neuron.reports import NeuronDevice
from tests.tools.neuron import STAND_IN, Machine, neuron_environment
from tests.tools.waiting import eventually
from workers.core import device as devices
from workers.core.device import (
    AddedDevice,
    CpuDevice,
    cpu_seconds,
    host_seconds,
    open_device,
    own_processes,
    tree_bytes,
)

#: A report of an inf1.xlarge, shortened: one runtime of ours, one of somebody else's, and what newer tools add.
REPORT = {
    "neuron_runtime_data": [
        {
            "pid": 15439,
            "address": "127.0.0.1",
            "neuron_runtime_tag": "corelane-nc0",
            "error": "",
            "report": {
                "execution_stats": {
                    "error_summary": {
                        "generic": 0,
                        "numeric": 2,
                        "transient": 0,
                        "model": 0,
                        "runtime": 0,
                        "hardware": 1,
                    },
                    "execution_summary": {"completed": 14, "timed_out": 1},
                    "latency_stats": {"total_latency": None},
                },
                "neuron_runtime_vcpu_usage": {"vcpu_usage": {"user": 4, "system": 1.5}, "error": ""},
                "memory_used": {
                    "neuron_runtime_used_bytes": {
                        "host": 1119887360,
                        "usage_breakdown": {
                            "neuroncore_memory_usage": {
                                "0": {"constants": 61766864, "model_code": 1308832, "tensors": 0},
                                "1": {"constants": 0, "model_code": 0},
                            }
                        },
                    }
                },
                "neuroncore_counters": {
                    "neuroncores_in_use": {
                        "0": {"neuroncore_utilization": 89.018, "flops": 7},
                        "1": {"neuroncore_utilization": 0},
                    }
                },
            },
        },
        {
            "pid": 20000,
            "neuron_runtime_tag": "20000",
            "report": {
                "neuroncore_counters": {
                    "neuroncores_in_use": {
                        "0": {"neuroncore_utilization": 0},
                        "1": {
                            "v3d": {
                                "nc_v3.0": {"neuroncore_utilization": 20},
                                "nc_v3.1": {"neuroncore_utilization": 40},
                            }
                        },
                    }
                }
            },
        },
    ],
    "system_data": {
        "neuron_hw_counters": {"neuron_devices": [{"neuron_device_index": 0, "mem_ecc_corrected": 3}]},
        "vcpu_usage": {"average_usage": {"user": 26.32, "system": 3, "idle": 68.68, "io_wait": 2, "irq": 0}},
    },
    "neuron_hardware_info": {"neuron_device_count": 1, "neuroncore_per_device_count": 4, "error": ""},
}


def told(*reports: object) -> bytes:
    totals = MonitorTotals()
    for report in reports:
        totals.take(report)
    return totals.encode()


def test_core_is_as_busy_as_its_busiest_runtime_says_and_errors_of_all_periods_add_up() -> None:
    text = told(REPORT, REPORT, REPORT)
    ours = figures(text, [0], ["corelane-nc0", "15439"])
    assert (ours["utilization"], ours["memory_bytes"]) == (0.8902, 61766864 + 1308832)
    counted = Counter({"numerical": 4, "hardware": 2, "timed_out": 2, "mem_ecc_corrected": 6})
    assert +Counter(ours["errors"]) == counted
    assert ours["errors"]["generic"] == 0
    assert (ours["host_vcpu"], ours["runtime_vcpu"]) == (0.2932, 0.055)
    theirs = figures(text, [1], ["corelane-nc1"])
    assert theirs["utilization"] == 0.4
    assert (theirs["host_vcpu"], "runtime_vcpu" in theirs) == (0.2932, False)
    assert +Counter(theirs["errors"]) == Counter({"mem_ecc_corrected": 6})
    assert figures(text, [0, 1], ["corelane-nc0"])["utilization"] == pytest.approx((0.89018 + 0.4) / 2, abs=1e-3)
    assert "utilization" not in figures(text, [9], ["corelane-nc9"])


def test_first_report_is_left_out() -> None:
    assert figures(told(REPORT), [0], ["corelane-nc0"]) == {}


@pytest.mark.parametrize(
    "report",
    [
        *([], None, 7, {}, {"neuron_runtime_data": None}, {"neuron_runtime_data": [None, {"report": None}]}),
        {"neuron_runtime_data": [{"report": {"neuroncore_counters": {"neuroncores_in_use": {"x": 1, "0": None}}}}]},
        {"neuron_runtime_data": [{"pid": 1, "report": {"execution_stats": {"error_summary": {"generic": None}}}}]},
        {"system_data": {"neuron_hw_counters": {"neuron_devices": [{"mem_ecc_corrected": 1}]}}},
        {"system_data": {"vcpu_usage": {"average_usage": {"idle": None}}}},
        {"neuron_runtime_data": [{"pid": 1, "report": {"neuron_runtime_vcpu_usage": {"vcpu_usage": None}}}]},
    ],
)
def test_report_of_another_shape_is_read_as_far_as_it_goes(report: object) -> None:
    found = figures(told(report, report), [0], ["1"])
    assert not sum(found.get("errors", {}).values())
    assert found.get("utilization", 0.0) == 0.0
    assert not {"host_vcpu", "runtime_vcpu"} & found.keys()
    assert figures(told(REPORT, report, REPORT), [0], ["corelane-nc0"])["utilization"] == 0.8902


def test_shared_text_that_is_cut_off_tells_nothing() -> None:
    assert figures(b'{"utilization": {', [0], ["a"]) == {}


def test_core_that_floats_over_many_cpus_is_busy_with_its_own_share() -> None:
    for cpus, least, most in ((1, 0.3, 0.7), (4, 0.05, 0.2)):
        device = CpuDevice(cpus)
        device._before = (time.monotonic() - 1000, cpu_seconds() - 500, (0.0, 0.0))
        assert least < device.read()["utilization"] < most


def test_cpu_is_as_busy_as_its_process_with_its_children(monkeypatch: pytest.MonkeyPatch) -> None:
    device = CpuDevice()
    clock = iter(
        [
            *((200.0, 10.0, (800.0, 600.0)), (202.0, 11.0, (808.0, 604.0))),
            *((202.0, 11.0, (808.0, 604.0)), (204.0, 30.0, (808.0, 604.0))),
        ]
    )
    now = next(clock)
    monkeypatch.setattr(devices, "host_seconds", lambda: now[2])
    monkeypatch.setattr(devices, "cpu_seconds", lambda: now[1])
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    device.read()
    now = next(clock)
    assert device.read() == {"utilization": 0.5, "host_vcpu": 0.5, "runtime_vcpu": 0.125}
    now = next(clock)
    assert device.read() == {}
    now = next(clock)
    assert device.read() == {"utilization": 1.0}


def test_host_tells_the_time_of_all_its_cpus() -> None:
    all_s, idle_s = host_seconds()
    assert all_s > idle_s > 0


def test_children_count_among_a_cores_processes_and_memory() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        eventually(lambda: child.pid in own_processes())
        assert tree_bytes() > 0
        child.kill()
    assert child.pid not in own_processes()


def test_gpu_tells_the_memory_that_is_held_there() -> None:
    assert open_device("cuda", lambda: 7).read() == {"memory_bytes": 7}
    assert AddedDevice(lambda: None).read() == {}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put this process on a stand-in's machine whose core 1 it holds."""
    machine = Machine("inf2").save(tmp_path / "machine")
    (machine / "cores" / "1").write_text(str(os.getpid()))
    for name, value in neuron_environment(machine).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(reports, "CONFIG", {"period": "0.05s"})
    monkeypatch.setattr(reports, "AGAIN_S", 0.05)
    return machine


OWN = {"NEURON_RT_VISIBLE_CORES": "1", "NEURON_PROCESS_TAG": "corelane-nc1"}


def monitors() -> list[int]:
    tool = str(STAND_IN / "bin" / "neuron-monitor").encode()
    return [pid for pid in own_processes() if tool in command_line(pid)]


def command_line(pid: int) -> bytes:
    """Return the command line of a process; none if it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.fixture
def watch(machine: Path, tmp_path: Path) -> Iterator[Callable[[], NeuronDevice]]:
    """Yield what opens a device of the stand-in's machine; after the test all are closed and no monitor is left."""
    opened: list[NeuronDevice] = []

    def open_one() -> NeuronDevice:
        opened.append(NeuronDevice(OWN, tmp_path / "shared"))
        return opened[-1]

    yield open_one
    for device in opened:
        device.close()
    eventually(lambda: monitors() == [])


def test_workers_of_a_host_share_one_monitor_and_another_takes_over(
    machine: Path, watch: Callable[[], NeuronDevice]
) -> None:
    first = watch()
    eventually(lambda: "utilization" in first.read())
    second = watch()
    assert second.read()["utilization"] == pytest.approx(0.89, abs=0.01)
    assert first.read()["memory_bytes"] > 60_000_000
    [pid] = monitors()
    (machine / "errors.new").write_text(json.dumps({"hardware": 1}))
    (machine / "errors.new").rename(machine / "errors.json")  # the monitor never reads half of it
    eventually(lambda: first.read()["errors"]["hardware"] >= 2)
    first.close()
    eventually(lambda: pid not in monitors() and len(monitors()) == 1)
    second.close()
    eventually(lambda: monitors() == [])


def test_monitor_ends_with_the_process_that_started_it(machine: Path, tmp_path: Path) -> None:
    program = (
        "import sys, pathlib; from corelane.plugins.backends.neuron.reports import NeuronDevice; "
        f"device = NeuronDevice({OWN!r}, pathlib.Path({str(tmp_path / 'shared')!r})); "
        "\nwhile device._process is None: pass"
        "\nprint(device._process.pid, flush=True); input()"
    )
    argv = [sys.executable, "-c", program]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        pid = int(worker.stdout.readline())
        worker.kill()
    eventually(lambda: not is_alive(pid))


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_figures_grow_stale(watch: Callable[[], NeuronDevice], tmp_path: Path) -> None:
    device = watch()
    eventually(lambda: device.read() != {})
    device.close()
    eventually(lambda: monitors() == [])
    file = tmp_path / "shared" / "told.json"
    os.utime(file, (file.stat().st_atime, time.time() - 60))
    assert device.read() == {}


def test_without_the_tool_nothing_is_told_and_nothing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports, "find_tool", lambda _: None)
    device = NeuronDevice(OWN, tmp_path / "shared")
    assert device.read() == {}
    device.close()


def test_figures_are_shown_as_one_number_each() -> None:
    told = device_figures(
        '{"utilization": 0.5, "host_vcpu": 0.2, "memory_bytes": 7, "errors": {"hardware": 1, "numerical": 2}}'
    )
    assert told == {"utilization": 0.5, "host_vcpu": 0.2, "memory_bytes": 7, "errors": 3}
    assert device_figures("") == {}
