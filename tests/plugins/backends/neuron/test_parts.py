"""The pure parts of a Neuron build, without processes."""

import ast
import os
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from corelane.engine.backends.protocol import WindowBatch
from corelane.engine.buckets import Bucket
from corelane.errors import CompileFailed, SetupError
from corelane.plugins.backends.neuron.chips import CHIPS
from corelane.plugins.backends.neuron.compiling import tracer
from corelane.plugins.backends.neuron.compiling.buckets import padded
from corelane.plugins.backends.neuron.compiling.cache import KEEP_S, Cache
from corelane.plugins.backends.neuron.compiling.children import TRACER, explain
from corelane.plugins.backends.neuron.compiling.coverage import read_analysis, read_log

LOG = """\
INFO:Neuron:Number of arithmetic operators (pre-compilation) before = 565, fused = 555, percent fused = 98.23%
INFO:Neuron:Number of arithmetic operators (post-compilation) before = 565, compiled = 555, percent compiled = 98.23%
INFO:Neuron:The neuron partitioner created 1 sub-graphs
INFO:Neuron:Compiled these operators (and operator counts) to Neuron:
INFO:Neuron: => aten::linear: 74
INFO:Neuron: => aten::gelu: 12
INFO:Neuron:Not compiled operators (and operator counts) to Neuron:
INFO:Neuron: => aten::embedding: 3 [not supported]
INFO:Neuron: => aten::add: 7 [supported]
"""


def test_coverage_is_read_from_the_inf1_log() -> None:
    coverage = read_log("noise\n" + LOG)
    assert coverage is not None
    assert coverage.percent == 98.23
    assert coverage.compiled == {"aten::linear": 74, "aten::gelu": 12}
    assert coverage.not_compiled == {"aten::embedding": 3, "aten::add": 7}
    assert coverage.reasons["aten::embedding"] == "the compiler does not know it"
    assert "outside" in coverage.reasons["aten::add"]
    assert read_log("INFO:Neuron:The neuron partitioner created 1 sub-graphs") is None


def test_analysis_is_read() -> None:
    supported = {"aten::linear": 3, "aten::add": 1}
    refused = {"kind": "aten::roll", "failureAt": "neuronx-cc", "call": "…", "opGraph": "…"}
    coverage = read_analysis(
        {"support_percentage": "66.67%", "supported_operators": supported, "unsupported_operators": [refused, refused]}
    )
    assert coverage.percent == 66.67
    assert coverage.compiled == {"aten::linear": 3, "aten::add": 1}
    assert coverage.not_compiled == {"aten::roll": 2}
    assert coverage.reasons == {"aten::roll": "fails at neuronx-cc"}


@pytest.mark.parametrize(
    ("status", "result", "sentence"),
    [
        (-9, {}, "the compiler was killed, most often for lack of memory.*--jobs 1"),
        (1, {"text": "neuronx-cc failed with 137"}, "the compiler was killed"),
        (-11, {}, "ended with status -11; the compiler's output: compile.log"),
        (1, {"text": "neuronx-cc failed with 70"}, "neuronx-cc failed with 70; the compiler's output"),
        (1, {"error": "unused", "text": "1"}, "does not use input 1"),
        (1, {"text": "first line\nno such operator"}, "no such operator"),
    ],
)
def test_a_failure_says_what_the_compiler_said_and_where(status: int, result: dict[str, Any], sentence: str) -> None:
    error = explain(status, result, CHIPS["inf2"], "bucket 4x32", Path("compile.log"))
    assert isinstance(error, CompileFailed)
    with pytest.raises(CompileFailed, match=f"bucket 4x32.*{sentence}"):
        raise error


@pytest.mark.parametrize(
    ("text", "kind", "sentence"),
    [
        ("PJRT_Client_Create: error condition !(num_devices > 0)", "failed", "no free inf2 core: add --cpu-backend"),
        ("The PyTorch Neuron Runtime could not be initialized.", "failed", "no free inf2 core"),
        ("WRONG PACKAGE. Please install", "import", "PyPI's stub of that name.* pip uninstall torch-neuronx"),
    ],
)
def test_missing_setup_is_told_apart_from_a_bad_model(text: str, kind: str, sentence: str) -> None:
    error = explain(1, {"error": kind, "text": text}, CHIPS["inf2"], "bucket 4x32", Path("compile.log"))
    with pytest.raises(SetupError, match=sentence):
        raise error


@pytest.fixture
def compiled(tmp_path: Path) -> Path:
    folder = tmp_path / "compiled"
    folder.mkdir()
    for name in ("bs4-len32.pt", "bs4-len32.neff", "bs4-len32.1.neff", "bs4-len320.pt"):
        (folder / name).write_bytes(name.encode())
    return folder


def test_cache_gives_back_a_buckets_files_under_any_name(compiled: Path, tmp_path: Path) -> None:
    cache, target = Cache(tmp_path / "cache"), tmp_path / "target"
    target.mkdir()
    cache.keep("key", compiled, "bs4-len32", {"seconds": 2.5})
    assert cache.fetch("key", target, "other") == {"seconds": 2.5}
    assert sorted(path.name for path in target.iterdir()) == ["other.1.neff", "other.neff", "other.pt"]
    assert (target / "other.pt").read_bytes() == b"bs4-len32.pt"
    assert cache.fetch("another key", target, "other") is None


@pytest.mark.parametrize("victim", ["model.pt", "record.json"])
def test_damaged_entry_counts_as_none(compiled: Path, tmp_path: Path, victim: str) -> None:
    cache = Cache(tmp_path / "cache")
    cache.keep("key", compiled, "bs4-len32", {"seconds": 1})
    (tmp_path / "cache" / "key" / victim).write_bytes(b"damaged")
    assert cache.fetch("key", tmp_path, "other") is None


def test_unused_entries_are_dropped(compiled: Path, tmp_path: Path) -> None:
    cache = Cache(tmp_path / "cache")
    for key in ("old", "used"):
        cache.keep(key, compiled, "bs4-len32", {"seconds": 1})
        os.utime(tmp_path / "cache" / key, (0, time.time() - 2 * KEEP_S))
    cache.fetch("used", tmp_path, "other")
    cache.drop_old()
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["used"]


def test_cache_that_cannot_be_written_is_no_failure(compiled: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    Cache(tmp_path / "cache").keep("key", compiled, "bs4-len32", {})


def test_example_always_has_padding() -> None:
    ids = np.ones((2, 16), dtype=np.int64)
    full = WindowBatch(Bucket(16, 2), ids, ids, 0 * ids)
    assert (padded(full).attention_mask == 0).sum() == 1
    assert padded(padded(full)) is not full
    assert (full.attention_mask == 1).all()


def unused(*indexes: str) -> list[warnings.WarningMessage]:
    text = "Received an input tensor that was unused. Tensor will be ignored. ({}shape=torch.Size([4, 32]))"
    messages = [UserWarning(text.format(index)) for index in indexes]
    return [warnings.WarningMessage(message, UserWarning, "trace.py", 1) for message in messages]


@pytest.mark.parametrize(
    ("caught", "allowed", "index"),
    [
        (unused("index=1, "), (), "1"),
        (unused("index=2, "), (), "2"),
        (unused("index=1, ", "index=2, "), (2,), "1"),
        (unused(""), (), "-1"),
        (unused("", ""), (2,), "-1"),
    ],
)
def test_unused_input_is_an_error(caught: list[warnings.WarningMessage], allowed: tuple[int, ...], index: str) -> None:
    with pytest.raises(tracer.TracerRefused, match=f"^{index}$"):
        tracer.check_warnings(caught, allowed)


@pytest.mark.parametrize("caught", [unused("index=2, "), unused(""), []])
def test_token_types_may_be_unused_if_the_network_takes_none(caught: list[warnings.WarningMessage]) -> None:
    tracer.check_warnings(caught, (2,))


def test_tracer_runs_on_the_python_of_inf1_and_imports_nothing_of_corelane() -> None:
    tree = ast.parse(TRACER.read_text(), feature_version=(3, 9))
    names = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    names += [str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert not {name.partition(".")[0] for name in names} & {"corelane", "compile", "api", "workers"}
