"""The neuron backend on the stand-in: what it refuses before the device is touched, and what each error becomes."""

import importlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corelane.artifacts.manifest import Artifact
from corelane.engine.backends.protocol import Backend, WindowBatch
from corelane.engine.buckets import Bucket
from corelane.engine.runner import Runner, open_backend
from corelane.errors import (
    ArtifactRefused,
    CoreBusy,
    CoreLost,
    EngineError,
    LoadFailed,
    RunFailed,
    RuntimeLost,
    SetupError,
)
from corelane.plugins.backends.neuron import backend as neuron
from corelane.settings import Settings
from corelane.tasks.question_answering.engine.task import QuestionQuery as Query
from tests.tools.neuron import Machine, inject, neuron_process, save_neuron_artifact

pytestmark = pytest.mark.neuron

BUCKET = Bucket(32, 4)


def batch(token: int = 7) -> WindowBatch:
    ids = np.full((4, 32), token, dtype=np.int64)
    return WindowBatch(BUCKET, ids, np.ones_like(ids), np.zeros_like(ids))


@contextmanager
def on(folder: Path, chip: str = "inf2", visible: str | None = "0", **env: str) -> Iterator[tuple[Backend, Path]]:
    with neuron_process(folder, Machine(chip), visible, **env) as place:
        yield open_backend(chip), place


def runtime() -> Any:
    return importlib.import_module("neuron_runtime").runtime


def changed(artifact: Artifact, **update: object) -> Artifact:
    return artifact.model_copy(update={"manifest": artifact.manifest.model_copy(update=update)})


@pytest.mark.parametrize(
    ("fault", "becomes"),
    [
        ({"status": 1003}, RunFailed),
        ({"status": 5}, RuntimeLost),
        ({"status": 7, "times": 4}, None),
        ({"status": 1005, "times": 5}, RuntimeLost),
        ({"status": 1201}, CoreLost),
        ({"hang_s": 0.05}, None),
        ({"hang_s": 60}, RuntimeLost),
    ],
)
def test_error_of_a_run(
    tmp_path: Path,
    neuron_artifacts: dict[str, Artifact],
    monkeypatch: pytest.MonkeyPatch,
    fault: dict[str, int],
    becomes: type[EngineError] | None,
) -> None:
    monkeypatch.setattr(neuron, "RETRY_PAUSES_S", (0, 0, 0, 0))
    with on(tmp_path, NEURON_RT_EXEC_TIMEOUT="0.1") as (backend, place):
        model = backend.load(neuron_artifacts["inf2"])
        inject(place, on="execute", **fault)
        if becomes is None:
            assert backend.run(model, batch())[0].shape == (4, 32)
            return
        with pytest.raises(becomes) as caught:
            backend.run(model, batch())
        assert type(caught.value) is becomes
        assert "core 0" in caught.value.detail or becomes is RunFailed


@pytest.mark.parametrize(
    ("status", "becomes"), [(4, LoadFailed), (2, LoadFailed), (10, LoadFailed), (1, RuntimeLost), (6, CoreLost)]
)
def test_error_of_a_load_leaves_no_memory_taken(
    tmp_path: Path, neuron_artifacts: dict[str, Artifact], status: int, becomes: type[EngineError]
) -> None:
    with on(tmp_path) as (backend, place):
        inject(place, on="load", status=status)
        with pytest.raises(becomes, match=f"status {status}"):
            backend.load(neuron_artifacts["inf2"])
        assert runtime().used == {0: 0}


def test_token_beyond_the_vocabulary_is_the_fault_of_its_row(
    tmp_path: Path, neuron_artifacts: dict[str, Artifact]
) -> None:
    with on(tmp_path) as (backend, _):
        model = backend.load(neuron_artifacts["inf2"])
        with pytest.raises(RunFailed, match="1006"):
            backend.run(model, batch(token=1_000_000))
        assert np.isfinite(backend.run(model, batch())[0]).all()


def test_core_of_another_process_is_busy_and_its_holder_named(
    tmp_path: Path, neuron_artifacts: dict[str, Artifact]
) -> None:
    with on(tmp_path) as (backend, place):
        from neuron_machine import take_core

        taken = take_core(place, 0)
        assert taken is not None
        for _ in range(2):
            with pytest.raises(CoreBusy, match=rf"core 0: .*{os.getpid()} \("):
                backend.load(neuron_artifacts["inf2"])
        os.close(taken)
        with pytest.raises(CoreBusy):
            backend.load(neuron_artifacts["inf2"])


def test_machine_that_lost_its_device_is_no_busy_core(
    tmp_path: Path, neuron_artifacts: dict[str, Artifact], monkeypatch: pytest.MonkeyPatch
) -> None:
    with on(tmp_path) as (backend, place):
        (place / "machine.json").unlink()
        with pytest.raises(CoreLost, match="neuron-ls"):
            backend.load(neuron_artifacts["inf2"])


def test_unloading_gives_the_memory_back_and_keeps_the_core(
    tmp_path: Path, neuron_artifacts: dict[str, Artifact]
) -> None:
    with on(tmp_path) as (backend, place):
        from neuron_machine import holder

        model = backend.load(neuron_artifacts["inf2"])
        assert runtime().used[0] == sum(bucket.bytes for bucket in model.artifact.manifest.buckets)
        backend.unload(model)
        assert runtime().used == {0: 0}
        assert holder(place, 0) == os.getpid()


def test_largest_bucket_is_loaded_first(
    tmp_path: Path, neuron_artifacts: dict[str, Artifact], monkeypatch: pytest.MonkeyPatch
) -> None:
    with on(tmp_path) as (backend, _):
        import torch

        load: Callable[[str], Any] = torch.jit.load
        loaded: list[str] = []

        def note_and_load(path: str) -> Any:
            loaded.append(Path(path).name)
            return load(path)

        monkeypatch.setattr(torch.jit, "load", note_and_load)
        buckets = [bucket.model_copy(update={"rows": 1}) for bucket in neuron_artifacts["inf2"].manifest.buckets]
        backend.load(changed(neuron_artifacts["inf2"], buckets=buckets))
        assert loaded == ["bs2-len64.pt", "bs4-len32.pt"]


def test_models_that_cannot_fit_are_refused_before_the_core_is_taken(
    tmp_path: Path, neuron_artifacts: dict[str, Artifact]
) -> None:
    artifact = neuron_artifacts["inf2"]
    size = sum(bucket.bytes for bucket in artifact.manifest.buckets)
    with neuron_process(tmp_path, Machine("inf2"), "0"):
        small = open_backend("inf2", Settings.model_validate({"device_memory_bytes": size - 1}))
        with pytest.raises(LoadFailed, match="device memory"):
            small.load(artifact)
        assert runtime().cores == ()
        enough = open_backend("inf2", Settings.model_validate({"device_memory_bytes": 2 * size - 1}))
        first = enough.load(artifact)
        with pytest.raises(LoadFailed, match="are taken"):
            enough.load(artifact)
        enough.unload(first)
        enough.load(artifact)


def test_other_logical_core_size_is_refused_before_the_runtime_sees_it(tmp_path: Path, tiny_artifact: Artifact) -> None:
    arguments = ["--target", "trn2", "--lnc", "1"]
    artifact = save_neuron_artifact(tiny_artifact, tmp_path / "artifacts", "trn2", compiler_args=arguments)
    with on(tmp_path, "trn2") as (backend, _), pytest.raises(ArtifactRefused, match="NEURON_LOGICAL_NC_CONFIG=1"):
        backend.load(artifact)
    with on(tmp_path, "trn2", NEURON_LOGICAL_NC_CONFIG="1") as (backend, _):
        backend.load(artifact)


@pytest.mark.parametrize(("visible", "reason"), [(None, "is not set"), ("0,2", "neighbours")])
def test_process_must_know_its_cores(tmp_path: Path, visible: str | None, reason: str) -> None:
    with neuron_process(tmp_path, Machine("inf2"), visible), pytest.raises(SetupError, match=reason):
        open_backend("inf2")


def test_package_that_is_not_there_is_named_with_the_way_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", "0")
    with pytest.raises(SetupError, match=r"not installed: pip install --extra-index-url \S+ .*torch-neuronx"):
        open_backend("trn1")


def test_torchneuron_does_not_serve(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="is TorchNeuron"), on(tmp_path, "trn3", NEURON_STAND_IN_FAULT="torchneuron"):
        pass


def test_lone_question_runs_in_the_shape_of_one_row(tmp_path: Path, tiny_artifact: Artifact) -> None:
    [full, longer] = tiny_artifact.manifest.buckets
    buckets = [full.model_copy(update={"rows": 1}), full, longer]
    artifact = save_neuron_artifact(changed(tiny_artifact, buckets=buckets), tmp_path / "artifacts", "inf2")
    with on(tmp_path) as (backend, _):
        runner = Runner.open(backend, artifact)

        def shapes(count: int) -> list[str]:
            """Answer questions that came together; return the shapes that they ran in."""
            runner.admit([(number, Query("who ?", "ada wrote")) for number in range(count)])
            answered: list[object] = []
            ran = []
            while len(answered) < count:
                running = runner.start()
                answered += running.finish()
                ran += [str(done.bucket) for done in running.passes]
            return ran

        assert (shapes(1), shapes(4)) == (["1x32"], ["4x32"])
        alone, together = (
            runner.results_of([Query("who ?", "ada wrote")]),
            runner.results_of([Query("who ?", "ada wrote")] * 4),
        )
        assert together == alone * 4
        runner.warm_up()
        runner.close()


def test_memory_errors_that_the_driver_counts_from_now_on_are_the_core_s_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counters = tmp_path / "neuron0" / "stats" / "hardware"
    counters.mkdir(parents=True)
    (counters / "mem_ecc_uncorrected").write_text("3\n")
    monkeypatch.setattr(neuron, "SYSFS", tmp_path)
    with on(tmp_path) as (backend, _):
        backend.health()
        (counters / "mem_ecc_uncorrected").write_text("5\n")
        with pytest.raises(CoreLost, match="2 uncorrectable"):
            backend.health()
