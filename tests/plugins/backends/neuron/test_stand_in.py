"""The stand-in keeps to what AWS documents of Neuron: whoever tests against it must be able to trust it."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from corelane.artifacts.manifest import Artifact
from corelane.engine.backends.cpu import torchscript_warnings_silenced
from corelane.plugins.backends.neuron.chips import CHIPS
from tests.tools.neuron import Machine, neuron_process

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
