"""Linear layers in int8, quantised row by row as they run.

Each token's activations get a scale of their own, so a token's result does not depend on other rows of the batch.
torch.ao uses one scale for the whole batch. Other rows then move a row's logits, by 1.5 and more on the built-in model,
which changed one result in five. torch.ao is also deprecated.
"""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from compile.torch.head import HEADS

#: Largest magnitude of a symmetric int8.
INT8_MAX = 127

#: Adding and subtracting 1.5 × 2^23 rounds an fp32 of less than 2^22 to the nearest integer; torch.round is ten times
#: slower on a CPU.
ROUNDING = 1.5 * 2**23

#: Keeps the scale of a row of zeros above zero.
SMALLEST = 1e-8


class Int8Linear(nn.Module):
    """A linear layer with int8 weights (one scale per output) and int8 activations (one scale per token)."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        weight = linear.weight.detach().float()
        scale = weight.abs().amax(dim=1, keepdim=True).clamp_min(SMALLEST) / INT8_MAX
        bias = torch.zeros(linear.out_features) if linear.bias is None else linear.bias.detach().float()
        self.register_buffer("weight", (weight / scale).round().to(torch.int8).t())
        self.register_buffer("scale", scale.t().contiguous())
        self.register_buffer("bias", bias.clone())

    def forward(self, inputs: Tensor) -> Tensor:
        """Compute the layer in int8.

        Works in place on this layer's own tensors: new large ones would cost more in page faults than in arithmetic.
        """
        rows = inputs.reshape(-1, inputs.shape[-1])
        scale = rows.abs().amax(dim=1, keepdim=True).clamp_min(SMALLEST) * (1 / INT8_MAX)
        quantised = (rows * scale.reciprocal()).add_(ROUNDING).sub_(ROUNDING).to(torch.int8)
        product = torch._int_mm(quantised, self.weight).to(torch.float32)
        outputs = product.mul_(scale).mul_(self.scale).add_(self.bias)
        return outputs.reshape(*inputs.shape[:-1], outputs.shape[-1])


def quantise(network: Any) -> Any:
    """Return a copy of the network with its linear layers in int8, except the head."""
    quantised = copy.deepcopy(network)
    for module in list(quantised.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, nn.Linear) and name not in HEADS:
                layer = Int8Linear(child)
                layer._forward_pre_hooks.update(child._forward_pre_hooks)
                layer._forward_hooks.update(child._forward_hooks)
                setattr(module, name, layer)
    return quantised
