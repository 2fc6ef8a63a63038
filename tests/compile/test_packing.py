"""Packed linear layers, loaded from a file, equal plain ones at any number of rows and are packed once."""

import io
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from compile.model.loading import load_model, quiet_transformers
from compile.model.reference import runner_of, wrap
from compile.model.source import find_source
from compile.torch.attention import BLOCK, EXCESSES, LONGEST_WHOLE, attend
from compile.torch.cpu import CpuDtype, cast, compile_trace, serialise, trace
from compile.torch.packing import packs
from corelane.engine.backends.cpu import settle, torchscript_warnings_silenced
from corelane.engine.backends.protocol import WindowBatch
from corelane.engine.buckets import Bucket
from tests.compile.test_cpu import make_batch
from tests.compile.tiny_models import save_tiny_distilbert, save_tiny_roberta

PACKING = "mkldnn::_reorder_linear_weight"

#: Logits are about ±1. In bf16 a GELU without a rounding before it differs in the last of 8 bits.
NEAR = {"fp32": 1e-5, "bf16": 0.03}


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert"])
def test_packed_trace_gives_the_logits_of_the_plain_one(
    tiny_model: Path, tmp_path: Path, family: str, dtype: CpuDtype
) -> None:
    made = {"roberta": save_tiny_roberta, "distilbert": save_tiny_distilbert}
    folder = made[family](tmp_path / family) if family in made else tiny_model
    with quiet_transformers():
        module = cast(wrap(load_model(find_source(str(folder)))), dtype)
        traced = trace(module, make_batch(Bucket(length=32, rows=4), 4, 20, used=30))
    packed = compile_trace(traced, dtype)
    with torchscript_warnings_silenced():
        loaded = settle(torch.jit.load(io.BytesIO(serialise(packed))).eval())
    left = loaded.graph.findAllNodes(PACKING) + loaded.graph.findAllNodes("aten::linear")
    assert not packs(dtype) or not left
    weights = [value.toIValue() for node in packed.graph.findAllNodes(PACKING) for value in [node.inputsAt(0)]]
    assert all(weight.size(0) > 2 for weight in weights), "the head would have a kernel for each number of tokens"
    for rows, length in ((4, 32), (1, 48)):
        batch = make_batch(Bucket(length=length, rows=rows), rows, 20, used=length - 3)
        plain, again = runner_of(traced)(batch), runner_of(loaded)(batch)
        np.testing.assert_allclose(again[0], plain[0], atol=NEAR[dtype], rtol=0)
        np.testing.assert_allclose(again[1], plain[1], atol=NEAR[dtype], rtol=0)


def test_module_without_packing_is_settled_as_it_is(tiny_model: Path) -> None:
    batch = make_batch(Bucket(length=32, rows=2), 2, 60, used=30)
    with quiet_transformers():
        traced = trace(wrap(load_model(find_source(str(tiny_model)))), batch)
    before = runner_of(traced)(batch)
    np.testing.assert_array_equal(runner_of(settle(traced))(batch)[0], before[0])


def test_attention_in_products_sees_no_padding(tiny_model: Path) -> None:
    with quiet_transformers():
        module = cast(wrap(load_model(find_source(str(tiny_model)))), "bf16")
    full = make_batch(Bucket(length=32, rows=2), 2, 60, used=32)
    mask = full.attention_mask.copy()
    mask[1, 16:] = 0
    types = np.ones_like(mask)
    before = runner_of(module)(WindowBatch(full.bucket, full.input_ids, mask, types))
    ids = full.input_ids.copy()
    ids[1, 16:] = 7
    after = runner_of(module)(WindowBatch(full.bucket, ids, mask, types))
    np.testing.assert_allclose(after[0][0], before[0][0], atol=1e-6)
    np.testing.assert_allclose(after[0][1, :16], before[0][1, :16], atol=1e-6)


@pytest.mark.parametrize("length", [8, LONGEST_WHOLE + BLOCK + 1])
def test_attention_in_products_is_that_of_torch_for_any_mask(length: int) -> None:
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, 3, length, 4) for _ in range(3))
    padding = torch.zeros(2, 1, length, length)
    padding[1, :, :, 5:] = torch.finfo(torch.float32).min
    causal = torch.full((2, 1, length, length), torch.finfo(torch.float32).min).triu(1)
    for mask in (None, padding, causal):
        ours, _ = attend(torch.nn.Identity(), query.clone(), key, value, mask)
        theirs = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        torch.testing.assert_close(ours, theirs.transpose(1, 2))


@pytest.mark.parametrize("largest", [3.0, 90.0, 400.0])
def test_scores_of_any_size_are_weighed_as_a_softmax_does(largest: float) -> None:
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, 3, 8, 4) for _ in range(3))
    scores = torch.matmul(query, key.transpose(2, 3)) / 2
    query = query * (largest / scores.max())
    padding = torch.zeros(2, 1, 8, 8)
    padding[1, :, :, 5:] = torch.finfo(torch.float32).min
    theirs = torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=padding)
    with torchscript_warnings_silenced(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=torch.jit.TracerWarning)
        small = (query / largest, key, value, padding)
        traced = torch.jit.trace(lambda *each: attend(torch.nn.Identity(), *each)[0], small, check_trace=False)
    ours, _ = attend(torch.nn.Identity(), query, key, value, padding)
    torch.testing.assert_close(ours, theirs.transpose(1, 2), atol=1e-4, rtol=1e-4)
    # In bf16 a large score itself is only good to a whole number.
    rounded, _ = attend(torch.nn.Identity(), *(each.to(torch.bfloat16) for each in (query, key, value, padding)))
    assert bool(torch.isfinite(rounded).all())
    assert largest > 3 or torch.allclose(rounded.float(), ours, atol=0.05)
    torch.testing.assert_close(traced(query, key, value, padding), theirs.transpose(1, 2), atol=1e-4, rtol=1e-4)


def test_query_that_sees_no_key_yields_numbers() -> None:
    query, key, value = (torch.ones(1, 1, 4, 2, dtype=torch.bfloat16) for _ in range(3))
    hidden = torch.full((1, 1, 4, 4), torch.finfo(torch.bfloat16).min, dtype=torch.bfloat16)
    assert bool(torch.isfinite(attend(torch.nn.Identity(), query, key, value, hidden)[0]).all())


def test_lengths_share_one_trace_where_scores_are_moved(tiny_model: Path) -> None:
    with quiet_transformers():
        reference = wrap(load_model(find_source(str(tiny_model))))
    for layer in reference.network.bert.encoder.layer:
        layer.attention.self.query.weight.data *= 4000
    module = cast(reference, "bf16")
    traced = runner_of(trace(module, make_batch(Bucket(length=16, rows=1), 1, 60, used=16)))
    longer = make_batch(Bucket(length=32, rows=2), 2, 60, used=24)
    np.testing.assert_array_equal(traced(longer)[0], runner_of(module)(longer)[0])
    assert max(EXCESSES.values()) > 0
