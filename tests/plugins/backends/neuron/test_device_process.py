"""The cores of inf1, in a device process of a Python without Corelane: its script, its errors, its end."""

import ast
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corelane.artifacts.manifest import Artifact
from corelane.engine.backends.protocol import Backend, WindowBatch
from corelane.engine.buckets import Bucket
from corelane.engine.runner import open_backend
from corelane.errors import (
    ArtifactRefused,
    CoreLost,
    LoadFailed,
    RunFailed,
    RuntimeLost,
    SetupError,
)
from corelane.plugins.backends.neuron import backend as neuron
from corelane.plugins.backends.neuron import device_process, remote
from corelane.settings import Settings
from tests.tools.neuron import (
    Machine,
    holder,
    inject,
    neuron_environment,
    neuron_process,
    save_neuron_artifact,
)
from tests.tools.waiting import eventually

pytestmark = pytest.mark.neuron

BUCKET = Bucket(32, 4)


def batch(token: int = 7, bucket: Bucket = BUCKET) -> WindowBatch:
    ids = np.full((bucket.rows, bucket.length), token, dtype=np.int64)
    return WindowBatch(bucket, ids, np.ones_like(ids), np.zeros_like(ids))


def python_of(neuron_python: str, **more: int) -> Settings:
    return Settings.model_validate({"neuron_python": neuron_python, **more})


@pytest.fixture
def on(tmp_path: Path, neuron_python: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a block that plays a worker of inf1, with its backend and the folder of its machine."""
    monkeypatch.setattr(neuron, "RETRY_PAUSES_S", (0, 0, 0, 0))

    @contextmanager
    def block(visible: str = "0", memory_bytes: int = 0, **env: str) -> Iterator[tuple[Backend, Path]]:
        with neuron_process(tmp_path / visible, Machine("inf1", memory_bytes=memory_bytes), visible, **env) as place:
            yield open_backend("inf1", python_of(neuron_python, device_memory_bytes=10**9)), place

    return block


def test_script_runs_on_python_3_8_and_imports_nothing_but_its_library() -> None:
    text = Path(device_process.__file__).read_text()
    tree = ast.parse(text, feature_version=(3, 8))
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names
    assert len(text.splitlines()) <= 250


def test_its_python_has_no_corelane(neuron_python: str) -> None:
    done = subprocess.run([neuron_python, "-c", "import torch, corelane"], cwd="/", capture_output=True, check=False)
    assert b"No module named 'corelane'" in done.stderr


def test_errors_there_are_those_of_a_core_here(on: Any, neuron_artifacts: dict[str, Artifact]) -> None:
    with on() as (backend, place):
        inject(place, on="load", status=4)
        with pytest.raises(LoadFailed, match=r"bs\d-len\d\d.pt of tiny-qa.* does not load: status 4 \(RESOURCE"):
            backend.load(neuron_artifacts["inf1"])
        model = backend.load(neuron_artifacts["inf1"])
        inject(place, on="execute", status=1003)
        with pytest.raises(RunFailed, match="status 1003"):
            backend.run(model, batch())
        with pytest.raises(RunFailed, match="status 1006"):
            backend.run(model, batch(token=1_000_000))
        inject(place, on="execute", status=7, times=4)
        assert np.isfinite(backend.run(model, batch())[0]).all()
        inject(place, on="execute", status=1202)
        with pytest.raises(CoreLost, match=r"core 0: .*1202 \(HW_ERR_NC_UE"):
            backend.run(model, batch())
        assert holder(place, 0) is None


def test_process_that_dies_or_hangs_is_lost_with_the_core_free_again(
    on: Any, neuron_artifacts: dict[str, Artifact], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "GRACE_S", 0.1)
    with on(NEURON_RT_EXEC_TIMEOUT="0.1") as (backend, place):
        model = backend.load(neuron_artifacts["inf1"])
        os.kill(holder(place, 0), signal.SIGSTOP)
        with pytest.raises(RuntimeLost, match="core 0: forward pass of 4x32 failed: the device process gave no reply"):
            backend.run(model, batch())
        assert holder(place, 0) is None
        with pytest.raises(RuntimeLost, match=r"the device process was killed \(signal 9\)"):
            backend.run(model, batch())
        backend.unload(model)


def test_several_models_share_the_process_and_one_unloaded_gives_its_memory_back(
    on: Any, neuron_artifacts: dict[str, Artifact], tiny_artifact: Artifact, tmp_path: Path
) -> None:
    buckets = [bucket.model_copy(update={"rows": 8}) for bucket in tiny_artifact.manifest.buckets]
    manifest = tiny_artifact.manifest.model_copy(update={"buckets": buckets})
    larger = save_neuron_artifact(tiny_artifact.model_copy(update={"manifest": manifest}), tmp_path / "large", "inf1")
    two = sum(bucket.bytes for bucket in (*neuron_artifacts["inf1"].manifest.buckets, *larger.manifest.buckets))
    with on(memory_bytes=4 * (two + 96 * 1000**2 + 1000)) as (backend, place):
        first, second = backend.load(neuron_artifacts["inf1"]), backend.load(larger)
        device = holder(place, 0)
        small = backend.run(first, batch())
        # The batch is larger than any before.
        assert np.allclose(backend.run(second, batch(bucket=Bucket(32, 8)))[0][:4], small[0], atol=1e-4)
        assert backend.run(second, batch(bucket=Bucket(64, 8)))[1].shape == (8, 64)
        with pytest.raises(LoadFailed, match="status 4"):
            backend.load(neuron_artifacts["inf1"])
        backend.unload(first)
        again = backend.load(neuron_artifacts["inf1"])
        assert np.array_equal(backend.run(again, batch())[0], small[0])
        assert holder(place, 0) == device


def test_pipeline_runs_on_its_group_and_nowhere_else(on: Any, neuron_artifacts: dict[str, Artifact]) -> None:
    with on("0-3") as (backend, place):
        model, single = backend.load(neuron_artifacts["pipeline"]), backend.load(neuron_artifacts["inf1"])
        inject(place, on="execute", status=1003, core=1)
        alone = backend.run(single, batch())
        with pytest.raises(RunFailed, match="status 1003"):
            backend.run(model, batch())
        assert np.array_equal(backend.run(model, batch())[0], alone[0])
    with on("2") as (backend, _), pytest.raises(ArtifactRefused, match="4 neighbouring cores; this worker has 2"):
        backend.load(neuron_artifacts["pipeline"])


def test_shapes_without_content_are_no_answers(on: Any, neuron_artifacts: dict[str, Artifact]) -> None:
    with on(NEURON_STAND_IN="") as (backend, _):
        model = backend.load(neuron_artifacts["inf1"])
        with pytest.raises(CoreLost, match="no Neuron device"):
            backend.run(model, batch())


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (None, r"need torch-neuron, which is not installed: \S+neuron-python -m pip install --extra-index-url"),
        ("raise ImportError('WRONG PACKAGE. Please install')", r"PyPI's stub of that name.*pip uninstall torch-neuron"),
        ("import libneuron_that_is_missing", "is installed but does not import: .*libneuron"),
        ("raise OSError('libnrt.so.1: no such file')", "is installed but does not import: .*libnrt"),
        ("import os; os._exit(3)", "does not run the cores of inf1: the device process ended with status 3"),
    ],
)
def test_python_without_the_package_is_refused_with_what_to_install(
    tmp_path: Path, neuron_python: str, monkeypatch: pytest.MonkeyPatch, code: str | None, reason: str
) -> None:
    if code is not None:
        (tmp_path / "torch_neuron.py").write_text(code)
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", "0")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(SetupError, match=reason):
        open_backend("inf1", python_of(neuron_python))


def test_python_that_is_not_there_is_refused_with_the_way_to_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", "0")
    with pytest.raises(SetupError, match=r"deploy/inf1.Dockerfile.* constraints/inf1.txt .*CORELANE_NEURON_PYTHON"):
        open_backend("inf1", python_of("/nowhere/python3.9"))


#: A worker that opens its backend on a thread which ends, as that which loads models does, and begins a long pass.
WORKER = """
import sys, threading
from pathlib import Path
from corelane.artifacts.manifest import read_artifact
from corelane.engine.runner import open_backend
from tests.plugins.backends.neuron.test_device_process import batch, python_of
opened = []
def load():
    backend = open_backend("inf1", python_of(sys.argv[1]))
    opened.extend([backend, backend.load(read_artifact(Path(sys.argv[2])))])
thread = threading.Thread(target=load)
thread.start()
thread.join()
opened[0].run(opened[1], batch())
print("ran", flush=True)
sys.stdin.read(1)
opened[0].run(opened[1], batch())
"""


def test_process_outlives_the_thread_that_started_it_and_dies_with_the_worker_in_the_middle_of_a_pass(
    tmp_path: Path, neuron_python: str, neuron_artifacts: dict[str, Artifact]
) -> None:
    place = Machine("inf1").save(tmp_path / "machine")
    variables = {"NEURON_RT_VISIBLE_CORES": "0", "NEURON_RT_EXEC_TIMEOUT": "600"}
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, neuron_python, str(neuron_artifacts["inf1"].path)],
        env=dict(os.environ) | neuron_environment(place) | variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"ran\n"
        inject(place, on="execute", hang_s=600)
        [fault] = (place / "faults").iterdir()
        worker.stdin.write(b"x")
        worker.stdin.flush()
        eventually(lambda: '"times": 0' in fault.read_text())
        os.kill(holder(place, 0), signal.SIGTERM)
        assert holder(place, 0) is not None
        worker.kill()
        eventually(lambda: holder(place, 0) is None)
