from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from compile.build import build
from compile.model.loading import load_model, quiet_transformers
from compile.model.reference import runner_of, wrap
from compile.model.source import find_source
from compile.torch.cpu import cast, trace
from compile.torch.int8 import Int8Linear
from corelane.artifacts.manifest import Artifact
from corelane.engine.backends.cpu import CpuBackend
from corelane.engine.backends.protocol import WindowBatch
from corelane.engine.buckets import Bucket
from corelane.settings import Settings
from tests.compile.tiny_models import save_tiny_distilbert
from tests.tools.cpu_kinds import torch_int8_is_played


def make_batch(bucket: Bucket, rows: int, highest_id: int, used: int) -> WindowBatch:
    rng = np.random.default_rng(3)
    ids = rng.integers(4, highest_id, size=(rows, bucket.length))
    mask = np.zeros_like(ids)
    mask[:, :used] = 1
    types = mask.copy()
    types[:, :9] = 0
    return WindowBatch(bucket, ids, mask, types)


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_artifact_gives_the_logits_of_the_eager_model(tiny_artifact: Artifact, tiny_model: Path, rows: int) -> None:
    batch = make_batch(Bucket(length=32, rows=4), rows, 60, used=25)
    backend = CpuBackend()
    compiled = backend.run(backend.load(tiny_artifact), batch)
    with quiet_transformers():
        eager = runner_of(wrap(load_model(find_source(str(tiny_model)))))(batch)
    np.testing.assert_allclose(compiled[0][:, :25], eager[0][:, :25], atol=1e-5)
    np.testing.assert_allclose(compiled[1][:, :25], eager[1][:, :25], atol=1e-5)


def test_network_without_token_types_takes_and_ignores_them(tmp_path: Path) -> None:
    folder = save_tiny_distilbert(tmp_path / "tiny-distilbert")
    artifact = build(str(folder), settings=Settings(data_dir=tmp_path), buckets="2x32", dtype="fp32")
    assert artifact.manifest.tokenizer.uses_token_types
    batch = make_batch(Bucket(length=32, rows=2), 2, 20, used=32)
    backend = CpuBackend()
    model = backend.load(artifact)
    with_types = backend.run(model, batch)
    without = backend.run(
        model, WindowBatch(batch.bucket, batch.input_ids, batch.attention_mask, 0 * batch.token_type_ids)
    )
    np.testing.assert_array_equal(with_types[0], without[0])


@pytest.mark.parametrize("dtype", ["bf16", "int8"])
def test_lower_dtypes_stay_near_fp32_and_keep_rows_apart(tiny_model: Path, dtype: str) -> None:
    with quiet_transformers():
        reference = wrap(load_model(find_source(str(tiny_model))))
        batch = make_batch(Bucket(length=32, rows=4), 4, 60, used=32)
        module = cast(reference, "bf16" if dtype == "bf16" else "int8")
        run = runner_of(trace(module, batch))
    logits, exact = run(batch), runner_of(reference)(batch)
    assert logits[0].dtype == np.float32
    np.testing.assert_allclose(logits[0], exact[0], atol=0.03)
    ids = batch.input_ids.copy()
    ids[1:] = ids[1:, ::-1]
    other = run(WindowBatch(batch.bucket, ids, batch.attention_mask, batch.token_type_ids))
    np.testing.assert_allclose(other[0][0], logits[0][0], atol=1e-6)


def test_casting_leaves_the_reference_as_it_was(tiny_model: Path) -> None:
    with quiet_transformers():
        reference = wrap(load_model(find_source(str(tiny_model))))
        batch = make_batch(Bucket(length=32, rows=2), 2, 60, used=20)
        before = runner_of(reference)(batch)
        for dtype in ("fp32", "bf16", "int8"):
            cast(reference, dtype)
        after = runner_of(reference)(batch)
    np.testing.assert_array_equal(before[0], after[0])


def test_int8_layer_is_near_the_layer_it_was_made_of() -> None:
    torch.manual_seed(0)
    linear = nn.Linear(64, 48)
    inputs = torch.randn(2, 5, 64)
    outputs = Int8Linear(linear)(inputs)
    assert outputs.shape == (2, 5, 48)
    if torch_int8_is_played():
        assert (outputs - linear(inputs)).abs().max() < 0.03


def test_int8_layer_gives_each_row_its_own_scale() -> None:
    torch.manual_seed(0)
    layer = Int8Linear(nn.Linear(64, 48))
    inputs = torch.randn(4, 64)
    loud = inputs.clone()
    loud[1:] *= 1000
    assert torch.equal(layer(inputs)[0], layer(loud)[0])


def test_int8_layer_survives_zeros_and_a_missing_bias() -> None:
    layer = Int8Linear(nn.Linear(16, 8, bias=False))
    assert torch.equal(layer(torch.zeros(3, 16)), torch.zeros(3, 8))
