"""The stand-in keeps to what AWS documents of Neuron: whoever tests against it must be able to trust it."""

import importlib
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from corelane.artifacts.manifest import Artifact
from corelane.engine.backends.cpu import torchscript_warnings_silenced
from corelane.engine.backends.neuron.chips import CHIPS
from tests.neuron_for_tests import STAND_IN, Machine, inject, neuron_environment, neuron_process

pytestmark = pytest.mark.neuron


@contextmanager
def process(folder: Path, machine: Machine, visible: str | None = "0", **env: str) -> Iterator[Any]:
    """Play a process that has imported its package; yield the runtime in it."""
    with neuron_process(folder, machine, visible, **env):
        importlib.import_module(CHIPS[machine.chip].package)
        yield importlib.import_module("neuron_runtime").runtime


def load(artifact: Artifact) -> Any:
    with torchscript_warnings_silenced():
        return torch.jit.load(artifact.file("bs4-len32.pt"))


def inputs(rows: int = 4, dtype: torch.dtype = torch.int64) -> list[torch.Tensor]:
    return [torch.ones((rows, 32), dtype=dtype) for _ in range(3)]


def test_shapes_and_types_are_fixed(tmp_path: Path, neuron_artifacts: dict[str, Artifact]) -> None:
    with process(tmp_path, Machine("inf2")):
        model = load(neuron_artifacts["inf2"])
        assert model(*inputs())[0].shape == (4, 32)
        with pytest.raises(RuntimeError, match="Incorrect tensor shape at input #0: received 3 32, expected 4 32"):
            model(*inputs(rows=3))
        with pytest.raises(RuntimeError, match="Incorrect tensor type at input #0"):
            model(*inputs(dtype=torch.int32))


@pytest.mark.parametrize(
    ("chip", "line"),
    [
        ("inf1", "NeuronCore(s) not available - Requested:nc0-nc1 Available:0"),
        (
            "inf2",
            "Logical Neuron Core(s) not available - Requested:lnc0-lnc1 Available:0 Logical Core size:1 (cores busy",
        ),
    ],
)
def test_core_belongs_to_one_process_and_a_failed_start_is_final(
    tmp_path: Path,
    neuron_artifacts: dict[str, Artifact],
    capfd: pytest.CaptureFixture[str],
    chip: str,
    line: str,
) -> None:
    with process(tmp_path, Machine(chip), "0-1"):
        from neuron_machine import folder, take_core

        place = folder()
        assert place is not None
        taken = take_core(place, 0)
        assert taken is not None
        with pytest.raises(RuntimeError, match="Neuron Runtime could not be initialized"):
            load(neuron_artifacts[chip])
        assert line in capfd.readouterr().err
        os.close(taken)
        with pytest.raises(RuntimeError, match="could not be initialized"):
            load(neuron_artifacts[chip])


def test_core_is_kept_when_every_model_is_gone_and_the_environment_is_read_once(
    tmp_path: Path, neuron_artifacts: dict[str, Artifact]
) -> None:
    with process(tmp_path, Machine("inf2"), "1") as runtime:
        load(neuron_artifacts["inf2"])
        assert (runtime.cores, runtime.used) == ((1,), {1: 0})
        os.environ["NEURON_RT_VISIBLE_CORES"] = "0"
        load(neuron_artifacts["inf2"])
        assert runtime.cores == (1,)


@pytest.mark.parametrize(
    ("visible", "count", "cores"), [(None, None, (0, 1, 2, 3)), (None, "2", (0, 1)), ("2-3", "1", (2, 3))]
)
def test_visible_cores_win_over_their_number_and_without_both_all_are_taken(
    tmp_path: Path,
    neuron_artifacts: dict[str, Artifact],
    visible: str | None,
    count: str | None,
    cores: tuple[int, ...],
) -> None:
    env = {} if count is None else {"NEURON_RT_NUM_CORES": count}
    with process(tmp_path, Machine("inf2", devices=(0, 1)), visible, **env) as runtime:
        load(neuron_artifacts["inf2"])
        assert runtime.cores == cores


@pytest.mark.parametrize(("visible", "line"), [("0,2", "Neuron cores are not contiguous"), ("7", "not available")])
def test_cores_that_cannot_be_had_are_refused(
    tmp_path: Path, neuron_artifacts: dict[str, Artifact], capfd: pytest.CaptureFixture[str], visible: str, line: str
) -> None:
    with process(tmp_path, Machine("inf2"), visible):
        with pytest.raises(RuntimeError, match="could not be initialized"):
            load(neuron_artifacts["inf2"])
        assert line in capfd.readouterr().err


def test_memory_of_a_core_is_limited_and_comes_back_with_the_model(
    tmp_path: Path, neuron_artifacts: dict[str, Artifact]
) -> None:
    size = neuron_artifacts["inf2"].file("bs4-len32.pt").stat().st_size
    room = 2 * (96 * 1000**2 + 2 * size)
    with process(tmp_path, Machine("inf2", memory_bytes=room)):
        held = [load(neuron_artifacts["inf2"]) for _ in range(2)]
        with pytest.raises(RuntimeError, match="Could not load the model status=4 message=Allocation Failure"):
            load(neuron_artifacts["inf2"])
        held.pop()
        load(neuron_artifacts["inf2"])


def test_other_generation_family_or_logical_size_does_not_load(
    tmp_path: Path, neuron_artifacts: dict[str, Artifact]
) -> None:
    with process(tmp_path / "trn2", Machine("trn2")), pytest.raises(RuntimeError, match="status=6"):
        load(neuron_artifacts["inf2"])
    with process(tmp_path / "inf2", Machine("inf2")), pytest.raises(RuntimeError, match="Unknown builtin op: neuron::"):
        load(neuron_artifacts["inf1"])
    with (
        process(tmp_path / "few", Machine("inf1"), "0-1"),
        pytest.raises(RuntimeError, match="status=9"),
    ):
        load(neuron_artifacts["pipeline"])


def test_models_go_to_the_least_used_core_unless_they_are_placed(
    tmp_path: Path, neuron_artifacts: dict[str, Artifact]
) -> None:
    with process(tmp_path, Machine("inf2"), "0-1") as runtime:
        package: Any = importlib.import_module("torch_neuronx")
        held = [load(neuron_artifacts["inf2"]) for _ in range(2)]
        assert runtime.used[0] == runtime.used[1] > 0
        with package.experimental.neuron_cores_context(start_nc=1, nc_count=1):
            held.append(load(neuron_artifacts["inf2"]))
        assert runtime.used[1] == 2 * runtime.used[0]
        with pytest.raises(ValueError, match="Invalid NeuronCore count"), package.neuron_cores_context(1, 2):
            pass


def test_faults_strike_where_and_as_often_as_they_were_asked_for(
    tmp_path: Path, neuron_artifacts: dict[str, Artifact]
) -> None:
    with process(tmp_path, Machine("inf2")):
        model = load(neuron_artifacts["inf2"])
        place = tmp_path / "machine"
        inject(place, on="execute", status=1002, core=1)
        inject(place, on="execute", status=1004, token=9)
        inject(place, on="execute", status=1203, times=2)
        for _ in range(2):
            with pytest.raises(RuntimeError, match="Failed to execute the model status=1203"):
                model(*inputs())
        model(*inputs())
        with pytest.raises(RuntimeError, match="status=1004"):
            model(9 * inputs()[0], *inputs()[1:])


def tool(name: str, machine: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    env = dict(os.environ) | neuron_environment(machine)
    return subprocess.run([STAND_IN / "bin" / name, *options], env=env, capture_output=True, text=True, check=False)


def test_list_of_devices_ends_as_the_real_tool_does(tmp_path: Path) -> None:
    machine = Machine("inf1", devices=(1,)).save(tmp_path / "machine")
    [device] = json.loads(tool("neuron-ls", machine, "-j").stdout)
    assert (device["nc_count"], device["neuroncore_ids"], device["numa_node"]) == (4, [4, 5, 6, 7], "-1")
    bad = tool("neuron-ls", machine, "--jsn")
    assert bad.returncode == 1
    assert "unknown option" in bad.stdout
    none = tool("neuron-ls", tmp_path / "elsewhere", "-j")
    assert (none.returncode, none.stdout) == (1, "")
    assert len(none.stderr.splitlines()) == 1


def test_monitor_reports_at_once_what_is_used(tmp_path: Path) -> None:
    machine = Machine("inf2").save(tmp_path / "machine")
    (machine / "cores" / "1").write_text(str(os.getpid()))
    env = dict(os.environ) | neuron_environment(machine)
    with subprocess.Popen([STAND_IN / "bin" / "neuron-monitor"], env=env, stdout=subprocess.PIPE) as monitor:
        assert monitor.stdout is not None
        report = json.loads(monitor.stdout.readline())
        monitor.kill()
    [runtime] = report["neuron_runtime_data"]
    assert runtime["pid"] == os.getpid()
    assert set(runtime["report"]["neuroncore_counters"]["neuroncores_in_use"]) == {"0", "1"}
    assert report["neuron_hardware_info"]["neuroncore_per_device_count"] == 2
