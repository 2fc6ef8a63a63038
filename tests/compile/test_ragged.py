"""A network whose tokens go through its layers without padding is the same network."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from compile.model.loading import load_model, quiet_transformers
from compile.model.reference import TaskNetwork, runner_of, wrap
from compile.model.source import find_source
from compile.torch.cpu import CpuDtype, cast, compiler_args, trace
from compile.torch.ragged import find_places, put_back, spread, take
from compile.torch.reshaping import PADDED, RAGGED, rows_of
from corelane.engine.backends.protocol import WindowBatch
from corelane.engine.buckets import Bucket
from tests.compile.test_cpu import make_batch
from tests.compile.tiny_models import save_tiny_distilbert, save_tiny_roberta

#: Logits are about ±1 here.
NEAR: dict[CpuDtype, float] = {"fp32": 1e-5, "bf16": 0.03}

#: Tokens of each row, of 32: much padding, an empty row, little, none, and tokens that do not begin a row.
ROWS = {
    "unequal": [range(32), range(9), range(20), range(1)],
    "one empty": [range(0), range(32), range(7), range(7)],
    "little": [range(32), range(31), range(32), range(32)],
    "none": [range(32)] * 4,
    "last": [range(20, 32), range(5, 30), range(32), range(3)],
    "lone": [range(20)],
}


def reference_of(folder: Path) -> TaskNetwork:
    with quiet_transformers():
        return wrap(load_model(find_source(str(folder))))


def batch_of(rows: list[range]) -> WindowBatch:
    full = make_batch(Bucket(length=32, rows=len(rows)), len(rows), 20, used=32)
    mask = np.zeros_like(full.input_ids)
    for number, tokens in enumerate(rows):
        mask[number, list(tokens)] = 1
    return WindowBatch(full.bucket, full.input_ids, mask, full.token_type_ids)


@pytest.mark.parametrize(
    ("family", "dtype"),
    [("bert", "fp32"), ("bert", "bf16"), ("roberta", "bf16"), ("distilbert", "fp32")],
)
def test_tokens_alone_give_the_logits_of_padded_rows(
    tiny_model: Path, tmp_path: Path, family: str, dtype: CpuDtype
) -> None:
    made = {"roberta": save_tiny_roberta, "distilbert": save_tiny_distilbert}
    reference = reference_of(made[family](tmp_path / family) if family in made else tiny_model)
    module = cast(reference, dtype)
    assert compiler_args(module.network, dtype)[-1] == RAGGED
    traced, eager = runner_of(trace(module, batch_of(ROWS["unequal"]))), runner_of(reference)
    for rows in ROWS.values():
        batch = batch_of(rows)
        ours, theirs, seen = traced(batch), eager(batch), batch.attention_mask == 1
        np.testing.assert_allclose(ours[0][seen], theirs[0][seen], atol=NEAR[dtype], rtol=0)
        np.testing.assert_allclose(ours[1][seen], theirs[1][seen], atol=NEAR[dtype], rtol=0)


def test_network_that_mixes_tokens_between_attentions_keeps_its_padding(tiny_model: Path) -> None:
    def mix(_: Any, __: Any, result: Any) -> Any:
        return result + result.roll(1, dims=1)

    reference = reference_of(tiny_model)
    reference.network.bert.encoder.layer[0].intermediate.register_forward_hook(mix)
    module = cast(reference, "fp32")
    assert rows_of(module.network) == PADDED
    batch = batch_of(ROWS["unequal"])
    ours, theirs, seen = runner_of(module)(batch), runner_of(reference)(batch), batch.attention_mask == 1
    np.testing.assert_allclose(ours[0][seen], theirs[0][seen], atol=1e-5)


@pytest.mark.parametrize("name", [name for name in ROWS if name != "lone"])
def test_tokens_come_back_to_their_places(name: str) -> None:
    mask = torch.from_numpy(batch_of(ROWS[name]).attention_mask)
    rows = torch.randn(*mask.shape, 6)
    tokens, numbers, pieces = find_places(mask, heads=3)
    ragged = take(rows, tokens)
    assert ragged.size(1) == mask.numel() if name in ("little", "none") else ragged.size(1) < mask.numel()
    assert ragged.size(1) % 16 == 0
    seen = mask == 1
    assert torch.equal(put_back(ragged, numbers, mask)[seen], rows[seen])
    heads = spread(ragged, pieces, mask, 3)
    assert heads.shape == (mask.size(0), 3, mask.size(1), 2)
    assert torch.equal(heads.transpose(1, 2).flatten(2)[seen], rows[seen])
