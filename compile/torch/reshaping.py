"""Change the layers of a transformers network into faster ones that compute the same, where its architecture allows it.

Its attentions are found by a pass in which each is noted, and its layers are the list in which they lie. Whether the
changed network is the same is tried on rows of unequal length, with the network itself.
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

#: The two values in a manifest.
RAGGED, PADDED = "rows=ragged", "rows=padded"

#: The name by which a network chooses to note its attentions.
NOTED = "corelane_noted"

#: The attribute of a network whose layers were changed.
CHANGED = "corelane_changed"

#: Rows and places of the batch by which a network is tried, and the tokens of all rows but the first: padding enough to
#: be left out.
ROWS, LENGTH, SHORT = 4, 16, 5

#: |Δlogit| of a changed network, in fp32.
NEAR = 1e-3


@dataclass(frozen=True, slots=True)
class Attention:
    """A module that attends, its heads, and what it multiplies its queries by."""

    module: Any
    heads: int
    scale: float


def change_layers(network: Any, attention: str) -> Any:
    """Return a copy of a network that attends as named, with faster layers if its architecture allows them."""
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
        difference = (logits(changed, batch) - logits(network, batch)).abs()
    if not bool(difference[:, batch["attention_mask"] > 0].max() <= NEAR):
        raise LookupError("the network is another without padding")
    if attention == PRODUCTS:
        for each in found:
            multiply_queries(each.module, each.scale * LOG2E)
    changed.set_attn_implementation(name)
    setattr(changed, CHANGED, True)
    return changed


def multiply_queries(attention: Any, factor: float) -> None:
    """Multiply what an attention's layer for queries gives."""
    query = find_parts(attention)[0]
    query.weight.data *= factor
    if query.bias is not None:
        query.bias.data *= factor
    setattr(attention, MULTIPLIED, True)


def rows_of(network: Any) -> str:
    """Return what a manifest says of a network's rows."""
    return RAGGED if hasattr(network, CHANGED) else PADDED


def find_attentions(network: Any) -> list[Attention]:
    """Return what attends, in order."""
    found: list[Attention] = []

    def note(module: Any, query: Tensor, _: Tensor, value: Tensor, *__: Any, **named: Any) -> tuple[Tensor, None]:
        scale = named.get("scaling")
        found.append(Attention(module, query.size(1), query.size(-1) ** -0.5 if scale is None else scale))
        return value.transpose(1, 2).contiguous(), None

    AttentionInterface.register(NOTED, note)
    with attending_by(network, NOTED):
        logits(network, make_batch(network))
    return found


@contextmanager
def attending_by(network: Any, attention: str) -> Iterator[None]:
    """Have a network attend in this way, for the block."""
    usual = network.config._attn_implementation
    network.set_attn_implementation(attention)
    try:
        yield
    finally:
        network.set_attn_implementation(usual)


def find_layers(network: nn.Module, attentions: Sequence[nn.Module]) -> list[nn.Module]:
    """Return the layers, each with one of the attentions; raises LookupError if there is no such list."""
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


def logits(network: Any, batch: dict[str, Tensor]) -> Tensor:
    """Return the logits of a batch: start and end."""
    with torch.inference_mode():
        outputs = network(**batch)
    return torch.stack([outputs.start_logits, outputs.end_logits]).float()
