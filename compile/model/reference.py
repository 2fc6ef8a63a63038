"""The eager fp32 network behind the engine's interface: the reference that every compiled bucket is compared with."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from compile.model.loading import SourceModel
from corelane.engine.backends.protocol import Batch, Logits

Run = Callable[[Batch], Logits]


class QuestionAnswering(nn.Module):
    """A network as the engine calls it: three int64 arrays in, (start_logits, end_logits) out, both fp32.

    The third array, token types, is ignored if the network takes none.
    """

    def __init__(self, network: Any, passes_token_types: bool) -> None:
        super().__init__()
        self.network = network
        self.passes_token_types = passes_token_types

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits, each rows × length."""
        types = {"token_type_ids": token_type_ids} if self.passes_token_types else {}
        outputs = self.network(input_ids=input_ids, attention_mask=attention_mask, **types)
        return outputs.start_logits.float(), outputs.end_logits.float()


def wrap(model: SourceModel) -> QuestionAnswering:
    """Wrap a model's eager network."""
    accepts = "token_type_ids" in inspect.signature(model.network.forward).parameters
    return QuestionAnswering(model.network, model.spec.uses_token_types and accepts).eval()


def runner_of(module: Any, device: str = "cpu") -> Run:
    """Return a function that runs a module, eager or compiled, on its device without a backend."""

    def run(batch: Batch) -> Logits:
        with torch.inference_mode():
            start, end = module(*tensors(batch, device))
        return Logits(start.float().cpu().numpy(), end.float().cpu().numpy())

    return run


def tensors(batch: Batch, device: str = "cpu") -> tuple[Tensor, Tensor, Tensor]:
    """Return the batch as the network's arguments, in order."""
    arrays = (batch.input_ids, batch.attention_mask, batch.token_type_ids)
    ids, mask, types = (torch.from_numpy(np.ascontiguousarray(array)).to(device) for array in arrays)
    return ids, mask, types
