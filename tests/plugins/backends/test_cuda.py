"""Target cuda where there is no GPU: what is refused and why, and what error texts mean. Where there is one, the
contract suite runs on it (test_contract.py).
"""

from pathlib import Path

import numpy as np
import pytest
import torch

from corelane.artifacts.manifest import Artifact, read_artifact
from corelane.engine.backends.protocol import WindowBatch
from corelane.engine.buckets import Bucket
from corelane.engine.cores import core_slot
from corelane.engine.runner import open_backend
from corelane.errors import CompileFailed, LoadFailed, RunFailed, RuntimeLost, SetupError
from corelane.plugins.backends.cuda.backend import LOST, classify, fill
from corelane.plugins.backends.cuda.compiler import choose_dtype
from corelane.plugins.backends.cuda.gpus import read_listing
from corelane.settings import Settings

#: As PyTorch raises them, shortened.
SEEN = [
    (
        "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be asynchronously reported",
        RuntimeLost,
    ),
    ("CUDA error: device-side assert triggered\nCompile with `TORCH_USE_CUDA_DSA`", RuntimeLost),
    ("CUDA error: uncorrectable ECC error encountered", RuntimeLost),
    ("CUDA error: the launch timed out and was terminated", RuntimeLost),
    ("CUDA error: unknown error", RuntimeLost),
    ("CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx(…)`", RuntimeLost),
    ("No CUDA GPUs are available: no CUDA-capable device is detected", RuntimeLost),
    ("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 15.77 GiB", RunFailed),
    ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", RunFailed),
    ("The size of tensor a (384) must match the size of tensor b (512)", RunFailed),
    ("CUDA error: invalid configuration argument", RunFailed),
]

LISTING = """\
GPU 0: NVIDIA A10G (UUID: GPU-1c3a2b4d-0000-1111-2222-333344445555)
GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-aaaabbbb-0000-1111-2222-333344445555)
  MIG 1g.10gb     Device  0: (UUID: MIG-7a7a7a7a-0000-1111-2222-333344445555)
"""

here = torch.cuda.is_available()


@pytest.mark.parametrize(("text", "kind"), SEEN)
def test_error_texts_are_told_apart(text: str, kind: type[Exception]) -> None:
    error = classify(RuntimeError(text), "forward pass of 8x128 failed", RunFailed)
    assert type(error) is kind
    assert "forward pass of 8x128 failed" in str(error)
    assert "\n" not in str(error)


def test_want_of_memory_says_what_helps() -> None:
    error = classify(
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "it does not load", LoadFailed
    )
    assert isinstance(error, LoadFailed)
    assert "compile smaller buckets" in error.detail


def test_texts_of_a_lost_gpu_are_written_as_they_are_compared() -> None:
    assert all(text == text.lower() for text in LOST)


def test_gpus_are_read_from_the_drivers_listing() -> None:
    assert read_listing(LISTING) == [
        "GPU-1c3a2b4d-0000-1111-2222-333344445555",
        "GPU-aaaabbbb-0000-1111-2222-333344445555",
    ]
    assert read_listing("No devices were found\n") == []


def test_workers_of_gpus_see_one_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver's tool is a script of ours here; what it prints is what a driver prints."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\ncat <<'END'\n{LISTING}END\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert (
        core_slot(1, Settings(target="cuda")).environment["CUDA_VISIBLE_DEVICES"]
        == "GPU-aaaabbbb-0000-1111-2222-333344445555"
    )
    with pytest.raises(SetupError, match="this machine has 0, 1"):
        core_slot(2, Settings(target="cuda"))
    tool.write_text("#!/bin/sh\necho 'driver mismatch' >&2\nexit 9\n")
    with pytest.raises(SetupError, match="see to the NVIDIA driver"):
        core_slot(0, Settings(target="cuda"))
    tool.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SetupError, match="no NVIDIA driver"):
        core_slot(0, Settings(target="cuda"))


def test_rows_that_a_batch_does_not_have_see_one_token() -> None:
    target = np.full((3, 4, 8), 9)
    ids = np.arange(16).reshape(2, 8)
    fill(target, WindowBatch(Bucket(8, 4), ids, np.ones_like(ids), np.zeros_like(ids)))
    assert (target[0, :2] == ids).all()
    assert target[1].sum(axis=1).tolist() == [8, 8, 1, 1]
    assert target[0, 2:].sum() == target[2].sum() == 0


@pytest.mark.parametrize(
    ("wanted", "has_bf16", "chosen"),
    [("auto", True, "bf16"), ("auto", False, "fp16"), ("fp16", True, "fp16"), ("fp32", True, "fp32")],
)
def test_auto_is_bf16_where_the_gpu_has_it(wanted: str, has_bf16: bool, chosen: str) -> None:
    assert choose_dtype(wanted, has_bf16) == chosen


def test_int8_is_not_compiled_for_gpus() -> None:
    with pytest.raises(CompileFailed, match="choose auto, bf16, fp16, fp32"):
        choose_dtype("int8", has_bf16=True)


def test_cpu_backend_refuses_an_artifact_for_gpus(tiny_artifact: Artifact) -> None:
    foreign = tiny_artifact.model_copy(
        update={"manifest": tiny_artifact.manifest.model_copy(update={"target": "cuda", "dtype": "fp16"})}
    )
    with pytest.raises(Exception, match="is for cuda"):
        open_backend("cpu").load(foreign)
    assert read_artifact(tiny_artifact.path).manifest.target == "cpu"


if not here:

    def test_backend_says_what_is_missing() -> None:
        with pytest.raises(SetupError, match=r"built without CUDA|finds no NVIDIA GPU"):
            open_backend("cuda")

    def test_compiling_is_refused_before_the_model_is_loaded(tmp_path: Path) -> None:
        from compile.build import build
        from corelane.settings import Settings

        with pytest.raises(CompileFailed, match="target cuda is compiled where a GPU is"):
            build(str(tmp_path / "no-such-model"), settings=Settings(data_dir=tmp_path), target="cuda")
        assert list(tmp_path.iterdir()) == []
