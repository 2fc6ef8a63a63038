"""A module that takes nothing but the shapes and dtypes it was traced with, in TorchScript, as the real ones do."""

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


class WithoutMask(nn.Module):
    """A network that does not use its attention mask."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, ids: Tensor, mask: Tensor, types: Tensor) -> tuple[Tensor, Tensor]:
        return self.inner(ids, torch.ones(ids.shape, dtype=torch.int64), types)
