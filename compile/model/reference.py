"""The eager fp32 network behind the engine's interface: the reference that every compiled bucket is compared with."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from compile.model.adapt import adapt, is_adapted
from compile.model.loading import SourceModel
from corelane.engine.backends.protocol import Logits, WindowBatch

Run = Callable[[WindowBatch], Logits]


class QuestionAnsweringNetwork(nn.Module):
    """A network with the engine's interface: three int64 arrays in, (start_logits, end_logits) out, both fp32.

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


def wrap(model: SourceModel) -> QuestionAnsweringNetwork:
    """Wrap a model's eager network, in the form that will be compiled."""
    return _wrapped(model, adapt(model.network))


def official_run(model: SourceModel, reference: QuestionAnsweringNetwork) -> Run:
    """Return the run whose logits a compiled model must reproduce.

    It is the run of ``reference``. If a changed form of the network is compiled, it is the run of the official network,
    which then reads each row alone and without padding.
    """
    if not is_adapted(model.network):
        return runner_of(reference)
    run = runner_of(_wrapped(model, model.network))

    def run_alone(batch: WindowBatch) -> Logits:
        shape = batch.input_ids.shape
        start, end = np.zeros(shape, dtype=np.float32), np.zeros(shape, dtype=np.float32)
        for row, visible in enumerate(batch.attention_mask.sum(axis=1).tolist()):
            if visible > 1:
                arrays = (batch.input_ids, batch.attention_mask, batch.token_type_ids)
                logits = run(WindowBatch(batch.bucket, *(array[row : row + 1, :visible] for array in arrays)))
                start[row, :visible], end[row, :visible] = logits[0][0], logits[1][0]
        return (start, end)

    return run_alone


def _wrapped(model: SourceModel, network: Any) -> QuestionAnsweringNetwork:
    accepts = "token_type_ids" in inspect.signature(model.network.forward).parameters
    types = model.spec.uses_token_types and accepts
    return QuestionAnsweringNetwork(network, types).eval()


def runner_of(module: Any, device: str = "cpu") -> Run:
    """Return a function that runs a module, eager or compiled, directly on its device."""

    def run(batch: WindowBatch) -> Logits:
        with torch.inference_mode():
            start, end = module(*tensors(batch, device))
        return (start.float().cpu().numpy(), end.float().cpu().numpy())

    return run


def tensors(batch: WindowBatch, device: str = "cpu") -> tuple[Tensor, Tensor, Tensor]:
    """Return the batch as the network's arguments, in order."""
    arrays = (batch.input_ids, batch.attention_mask, batch.token_type_ids)
    ids, mask, types = (torch.from_numpy(np.ascontiguousarray(array)).to(device) for array in arrays)
    return ids, mask, types
