"""A module that takes nothing but the shapes and dtypes it was traced with, in TorchScript, as the real ones do."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

FORWARD = """
def forward(self, {names}):
{checks}
    return self.inner({names})
"""

CHECK = """
    if {name}.dim() != {dims} or {different}:
        raise RuntimeError(
            "Incorrect tensor shape at input #{index}: received " + str({name}.size()) + ", expected {shape}"
        )
    if {name}.dtype != {dtype}:
        raise RuntimeError("Incorrect tensor type at input #{index}: expected {dtype}")
"""

#: torch's dtypes as TorchScript writes their numbers.
NUMBERS = {torch.int64: 4, torch.int32: 3, torch.float32: 6}


class Shell(nn.Module):
    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner


def make_shell(traced: Any, example: tuple[Tensor, ...]) -> Any:
    """Put the traced module behind checks of every input."""
    shell = torch.jit.script(Shell(traced))
    names = [f"input_{index}" for index in range(len(example))]
    checks = "".join(
        CHECK.format(
            name=name,
            index=index,
            dims=tensor.dim(),
            different=" or ".join(f"{name}.size({axis}) != {size}" for axis, size in enumerate(tensor.shape))
            or "False",
            shape=" ".join(map(str, tensor.shape)),
            dtype=NUMBERS[tensor.dtype],
        )
        for index, (name, tensor) in enumerate(zip(names, example, strict=True))
    )
    shell.define(FORWARD.format(names=", ".join(names), checks=checks))
    return shell


class Faulty(nn.Module):
    """A network with one of the faults that a compiled model may have."""

    def __init__(self, inner: Any, kind: str) -> None:
        super().__init__()
        self.inner = copy.deepcopy(inner)
        self.kind = kind
        if kind == "wrong-weights":
            for weights in self.inner.parameters():
                weights.data.mul_(1.3)

    def forward(self, ids: Tensor, mask: Tensor, types: Tensor) -> tuple[Tensor, Tensor]:
        if self.kind == "drop-mask":
            return self.inner(ids, torch.ones(ids.shape, dtype=torch.int64), types)
        start, end = self.inner(ids, mask, types)
        if self.kind == "nan":
            return start / 0.0 * 0.0, end
        if self.kind == "leaky":
            return start + start.mean(dim=0, keepdim=True), end
        return start, end


class Hanging(nn.Module):
    """One that runs once and never again."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner
        self.register_buffer("runs", torch.zeros(1))

    def forward(self, ids: Tensor, mask: Tensor, types: Tensor) -> tuple[Tensor, Tensor]:
        self.runs += 1
        while int(self.runs) > 1:
            self.runs += 1
        return self.inner(ids, mask, types)
