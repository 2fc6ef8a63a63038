"""The eager fp32 network behind the engine's interface: the reference that every compiled bucket is compared with."""

import inspect
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from compile.model.adapt import adapt, changes_of
from compile.model.loading import SourceModel
from compile.tasks.task import CompileTask
from corelane.engine.backends.protocol import Logits, Pass, WindowBatch


class TaskNetwork(nn.Module):
    """A network with the engine's interface: three int64 arrays in, a tuple of fp32 outputs out.

    The third array, token types, is ignored if the network takes none.
    """

    def __init__(self, network: Any, passes_token_types: bool, task: CompileTask) -> None:
        super().__init__()
        self.network = network
        self.passes_token_types = passes_token_types
        self.task = task

    def with_network(self, network: Any) -> "TaskNetwork":
        """Return this interface around another form of the network."""
        return TaskNetwork(network, self.passes_token_types, self.task).eval()

    def forward(self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor) -> tuple[Tensor, ...]:
        """Return the outputs that the task keeps. The first axis of each output counts rows."""
        types = {"token_type_ids": token_type_ids} if self.passes_token_types else {}
        outputs = self.network(input_ids=input_ids, attention_mask=attention_mask, **types)
        return tuple(outputs[name].float() for name in self.task.outputs)


def wrap(model: SourceModel) -> TaskNetwork:
    """Wrap a model's eager network, in the form that will be compiled."""
    return _wrapped(model, adapt(model.network))


def official_run(model: SourceModel, reference: TaskNetwork) -> Pass:
    """Return the run whose logits a compiled model must reproduce.

    It is the run of ``reference``. If a changed form of the network is compiled, it is the run of the official network,
    which then reads each row alone and without padding.
    """
    if not changes_of(model.network):
        return runner_of(reference)
    run = runner_of(_wrapped(model, model.network))

    def run_alone(batch: WindowBatch) -> Logits:
        found: dict[int, Logits] = {}
        for row, visible in enumerate(batch.attention_mask.sum(axis=1).tolist()):
            if visible > 1 or row == 0:
                arrays = (batch.input_ids, batch.attention_mask, batch.token_type_ids)
                found[row] = run(WindowBatch(batch.bucket, *(array[row : row + 1, :visible] for array in arrays)))
        return put_together(model.task, found, batch)

    return run_alone


def put_together(task: CompileTask, found: Mapping[int, Logits], batch: WindowBatch) -> Logits:
    """Return the outputs of a batch from those of single rows, by row. Missing rows, and padding, are zeros.

    ``found`` must have at least one row.
    """
    rows, length = batch.input_ids.shape
    arrays: list[Any] = []
    for number, some in enumerate(next(iter(found.values()))):
        each = np.zeros((rows, length, *some.shape[2:]) if task.per_token else (rows, *some.shape[1:]), np.float32)
        for row, its in found.items():
            array = its[number][0]
            each[(row, slice(len(array))) if task.per_token else row] = array
        arrays.append(each)
    return tuple(arrays)


def _wrapped(model: SourceModel, network: Any) -> TaskNetwork:
    accepts = "token_type_ids" in inspect.signature(model.network.forward).parameters
    types = model.spec.uses_token_types and accepts
    return TaskNetwork(network, types, model.task).eval()


def runner_of(module: Any, device: str = "cpu") -> Pass:
    """Return a function that runs a module, eager or compiled, directly on its device."""

    def run(batch: WindowBatch) -> Logits:
        with torch.inference_mode():
            found = module(*tensors(batch, device))
        return tuple(each.float().cpu().numpy() for each in (found if isinstance(found, tuple) else (found,)))

    return run


def tensors(batch: WindowBatch, device: str = "cpu") -> tuple[Tensor, Tensor, Tensor]:
    """Return the batch as the network's arguments, in order."""
    arrays = (batch.input_ids, batch.attention_mask, batch.token_type_ids)
    ids, mask, types = (torch.from_numpy(np.ascontiguousarray(array)).to(device) for array in arrays)
    return ids, mask, types
