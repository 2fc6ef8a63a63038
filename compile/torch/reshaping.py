"""Change the layers of a transformers network into faster ones that compute the same, where its architecture allows it.

A pass notes each attention. The layers are the list of modules that contain the attentions. The changed network is then
compared with the original on rows of unequal length.
"""

import copy
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface

from compile.torch.attention import LOG2E, MULTIPLIED, PRODUCTS
from compile.torch.ragged import RAGGED_ATTENTIONS, find_parts, leave_padding_out

#: What a manifest records: whether the layers skip padding.
RAGGED, PADDED = "rows=ragged", "rows=padded"

#: The name of the attention that notes each call, as a network selects it.
NOTED = "corelane_noted"

#: The attribute that marks a network whose layers were changed.
CHANGED = "corelane_changed"

#: Rows and length of the batch on which a network is tried, and the tokens of all rows but the first. That is enough
#: padding for it to be skipped.
ROWS, LENGTH, SHORT = 4, 16, 5

#: The outputs that tasks keep.
KEPT = ("start_logits", "end_logits", "logits", "last_hidden_state")

#: Largest |Δlogit| of a changed network, in fp32.
NEAR = 1e-3


@dataclass(frozen=True, slots=True)
class Attention:
    """A module that attends, its number of heads, and the factor by which it multiplies its queries."""

    module: Any
    heads: int
    scale: float


def change_layers(network: Any, attention: str) -> Any:
    """Return a copy of a network that uses this attention, with faster layers if its architecture allows them."""
    with suppress(RuntimeError, LookupError, ValueError, TypeError, AttributeError):
        return _change_layers(copy.deepcopy(network), attention, network)
    plain = copy.deepcopy(network)
    plain.set_attn_implementation(attention)
    return plain


def _change_layers(changed: Any, attention: str, network: Any) -> Any:
    found, name = find_attentions(changed), RAGGED_ATTENTIONS[attention]
    modules = [each.module for each in found]
    leave_padding_out(changed, find_layers(changed, modules), modules, found[0].heads)
    batch = make_batch(network)
    with attending_by(changed, RAGGED_ATTENTIONS["sdpa"]):
        pairs = list(zip(outputs_of(changed, batch), outputs_of(network, batch), strict=True))
    if not all(bool((one - other).abs().max() <= NEAR) for one, other in pairs):
        raise LookupError("the network is another without padding")
    if attention == PRODUCTS:
        for each in found:
            multiply_queries(each.module, each.scale * LOG2E)
    changed.set_attn_implementation(name)
    setattr(changed, CHANGED, True)
    return changed


def multiply_queries(attention: Any, factor: float) -> None:
    """Multiply the output of an attention's layer for queries."""
    query = find_parts(attention)[0]
    query.weight.data *= factor
    if query.bias is not None:
        query.bias.data *= factor
    setattr(attention, MULTIPLIED, True)


def rows_of(network: Any) -> str:
    """Return how a network treats its rows, as the manifest records it."""
    return RAGGED if hasattr(network, CHANGED) else PADDED


def find_attentions(network: Any) -> list[Attention]:
    """Return the attentions of a network, in the order in which they run."""
    found: list[Attention] = []

    def note(module: Any, query: Tensor, _: Tensor, value: Tensor, *__: Any, **named: Any) -> tuple[Tensor, None]:
        scale = named.get("scaling")
        found.append(Attention(module, query.size(1), query.size(-1) ** -0.5 if scale is None else scale))
        return value.transpose(1, 2).contiguous(), None

    AttentionInterface.register(NOTED, note)
    with attending_by(network, NOTED):
        outputs_of(network, make_batch(network))
    return found


@contextmanager
def attending_by(network: Any, attention: str) -> Iterator[None]:
    """Make a network use this attention, for the block."""
    usual = network.config._attn_implementation
    network.set_attn_implementation(attention)
    try:
        yield
    finally:
        network.set_attn_implementation(usual)


def find_layers(network: nn.Module, attentions: Sequence[nn.Module]) -> list[nn.Module]:
    """Return the layers, each of which has one of the attentions; raises LookupError if there is no such list."""
    for module in network.modules():
        if isinstance(module, nn.ModuleList) and len(module) == len(attentions) > 0:
            layers = list(module)
            if all(
                any(part is each for part in layer.modules()) for layer, each in zip(layers, attentions, strict=True)
            ):
                return layers
    raise LookupError("the network has no list of layers with an attention each")


def make_batch(network: Any) -> dict[str, Tensor]:
    """Return a batch of unequal rows."""
    ids = torch.arange(ROWS * LENGTH).view(ROWS, LENGTH) % network.config.vocab_size
    mask = torch.ones_like(ids)
    mask[1:, SHORT:] = 0
    return {"input_ids": ids, "attention_mask": mask}


def outputs_of(network: Any, batch: dict[str, Tensor]) -> list[Tensor]:
    """Return the network's outputs that tasks keep. Outputs with an entry for each token keep only visible tokens."""
    with torch.inference_mode():
        outputs = network(**batch)
    found = [outputs[name].float() for name in KEPT if name in outputs]
    mask = batch["attention_mask"]
    return [each[mask > 0] if each.shape[:2] == mask.shape else each for each in found]
