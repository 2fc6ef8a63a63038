"""Logits are as fine as fp32 in bf16 and fp16."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AlbertConfig,
    AlbertForQuestionAnswering,
    ModernBertConfig,
    ModernBertForQuestionAnswering,
    SplinterConfig,
    SplinterForQuestionAnswering,
)

from compile.model.loading import load_model, quiet_transformers
from compile.model.reference import runner_of, wrap
from compile.model.source import find_source
from compile.torch.cpu import cast, trace
from compile.torch.head import cast_body, find_head
from corelane.engine.buckets import Bucket
from tests.compile.test_cpu import make_batch

SIZES = {"vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
FAMILIES: dict[str, Any] = {
    "qa_outputs": lambda: AlbertForQuestionAnswering(AlbertConfig(**SIZES, embedding_size=16)),
    "classifier": lambda: ModernBertForQuestionAnswering(ModernBertConfig(**SIZES, pad_token_id=0)),
}


def test_compiled_logits_are_not_rounded_to_bf16(tiny_model: Path) -> None:
    with quiet_transformers():
        reference = wrap(load_model(find_source(str(tiny_model))))
    batch = make_batch(Bucket(length=32, rows=4), 4, 60, used=32)
    logits = runner_of(trace(cast(reference, "bf16"), batch))(batch)
    for each in (logits[0], logits[1]):
        rounded = torch.from_numpy(each).bfloat16().float().numpy()
        assert np.mean(rounded != each) > 0.9


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_head_keeps_its_weights_and_the_body_is_cast(name: str, dtype: torch.dtype) -> None:
    network = FAMILIES[name]().eval()
    weight = copy.deepcopy(getattr(network, name).weight)
    cast_body(network, dtype)
    dtypes = {key: each.dtype for key, each in network.named_parameters()}
    assert {key for key, each in dtypes.items() if each == torch.float32} == {f"{name}.weight", f"{name}.bias"}
    assert set(dtypes.values()) == {dtype, torch.float32}
    assert find_head(network) is getattr(network, name)
    assert torch.equal(getattr(network, name).weight, weight)
    assert network(input_ids=torch.tensor([[2, 7, 9, 3]])).start_logits.dtype == torch.float32


def test_head_of_several_layers_is_cast_with_its_network() -> None:
    network = SplinterForQuestionAnswering(SplinterConfig(**SIZES, question_token_id=5)).eval()
    assert find_head(network) is None
    cast_body(network, torch.bfloat16)
    assert {each.dtype for each in network.parameters()} == {torch.bfloat16}
