from pathlib import Path

import numpy as np
import pytest

from compile.build import build
from compile.model.loading import load_model, quiet_transformers
from compile.model.reference import runner_of, wrap
from compile.model.source import find_source
from compile.torch.cpu import cast, trace
from corelane.artifacts.manifest import Artifact
from corelane.engine.backends.cpu import CpuBackend
from corelane.engine.backends.protocol import WindowBatch
from corelane.engine.buckets import Bucket
from corelane.settings import Settings
from tests.compile.tiny_models import save_tiny_distilbert


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


def test_bf16_stays_near_fp32_and_keeps_rows_apart(tiny_model: Path) -> None:
    with quiet_transformers():
        reference = wrap(load_model(find_source(str(tiny_model))))
        batch = make_batch(Bucket(length=32, rows=4), 4, 60, used=32)
        module = cast(reference, "bf16")
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
        cast(reference, "fp32")
        cast(reference, "bf16")
        after = runner_of(reference)(batch)
    np.testing.assert_array_equal(before[0], after[0])
