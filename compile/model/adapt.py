"""Change networks whose code cannot be compiled as it stands, or that read their padding; results stay the same.

The official network stays the reference: it reads each row alone and without padding, and the adapted one must give its
logits. A change replaces a module or adds a hook. A copy of a network keeps its changes.
"""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from compile.model.one_token import find_by_mask, reads_one_token


class Padding:
    """The mask of the batch that a network is reading: 1 for its tokens, 0 for padding."""

    mask: Tensor

    def __call__(self, _module: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Store the mask. Registered as a hook before the network."""
        self.mask = kwargs["attention_mask"]
        return args, kwargs


class Blank:
    """A hook that sets values at padding to zero, as beyond a text's edge. ``axis`` is the tensor's axis of tokens."""

    def __init__(self, padding: Padding, axis: int) -> None:
        self.padding = padding
        self.axis = axis

    def __call__(self, _module: nn.Module, args: Any, output: Any = None) -> Any:
        """Zero a module's input at padding if called before the module runs, or its output if called after that."""
        if output is not None:
            return output * self._mask(output)
        return (args[0] * self._mask(args[0]), *args[1:])

    def _mask(self, tensor: Tensor) -> Tensor:
        mask = self.padding.mask
        shape = [1] * tensor.dim()
        shape[0], shape[self.axis] = mask.size(0), mask.size(1)
        return mask.reshape(shape).to(tensor.dtype)


class GlobalBeginning:
    """Make Longformer attend globally to all tokens before the first separator. A hook before the network.

    The network does this itself, but only if every row of the batch has a pair.
    """

    def __init__(self, sep_id: int) -> None:
        self.sep_id = sep_id

    def __call__(self, _module: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Add the mask of global attention."""
        separators = (kwargs["input_ids"] == self.sep_id).long().cumsum(dim=1)
        beginning = (separators == 0).long() * kwargs["attention_mask"]
        return args, kwargs | {"global_attention_mask": beginning}


class WindowedAttention(nn.Module):
    """Longformer's attention as full matrix products instead of chunks, for rows of any length.

    A token attends to the tokens within its window and to global ones. A global token attends to all tokens, through
    projections of its own.
    """

    def __init__(self, attention: Any) -> None:
        super().__init__()
        for name in ("query", "key", "value", "query_global", "key_global", "value_global"):
            setattr(self, name, getattr(attention, name))
        self.heads = int(attention.num_heads)
        self.reach = int(attention.one_sided_attn_window_size)

    def forward(
        self,
        hidden_states: Tensor,
        *_: Any,
        is_index_masked: Tensor,
        is_index_global_attn: Tensor,
        **__: Any,
    ) -> tuple[Tensor]:
        """Attend; the masks are rows × length. Every token attends to itself, so that padding stays finite."""
        position = torch.arange(hidden_states.size(1), device=hidden_states.device)
        distance = (position[:, None] - position[None, :]).abs()
        seen = ~is_index_masked[:, None, None, :]
        near = (distance <= self.reach) | is_index_global_attn[:, None, None, :]
        local = self._attend(hidden_states, "", (near & seen) | (distance == 0))
        everywhere = self._attend(hidden_states, "_global", seen | (distance == 0))
        return (torch.where(is_index_global_attn[:, :, None], everywhere, local),)

    def _attend(self, hidden_states: Tensor, kind: str, allowed: Tensor) -> Tensor:
        rows, length, size = hidden_states.shape
        query, key, value = (
            getattr(self, name + kind)(hidden_states).view(rows, length, self.heads, -1).transpose(1, 2)
            for name in ("query", "key", "value")
        )
        attended = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=allowed)
        return attended.transpose(1, 2).reshape(rows, length, size)


def _blank(network: Any, places: Mapping[str, tuple[int, bool]]) -> None:
    """Zero padding at the modules in ``places``: by name, the axis of tokens, and whether to zero the output."""
    padding = Padding()
    network.register_forward_pre_hook(padding, with_kwargs=True)
    for name, module in network.named_modules():
        if (place := places.get(name.rpartition(".")[2])) is not None:
            axis, after = place
            register = module.register_forward_hook if after else module.register_forward_pre_hook
            register(Blank(padding, axis))


def _adapt_longformer(network: Any) -> None:
    for module in list(network.modules()):
        for name, child in list(module.named_children()):
            if hasattr(child, "one_sided_attn_window_size"):
                setattr(module, name, WindowedAttention(child))
    # The network would pad to whole windows.
    network.config.attention_window = 2
    if hasattr(network, "longformer") and hasattr(network, "qa_outputs"):
        network.register_forward_pre_hook(GlobalBeginning(int(network.config.sep_token_id)), with_kwargs=True)


def _adapt_bloom(network: Any) -> None:
    for layer in getattr(network, "transformer", network).h:
        layer.mlp.gelu_impl = nn.GELU(approximate="tanh")


def _adapt_both_sides(network: Any) -> None:
    # A window of n tokens to each side has n as its own bound here, and n + 1 there.
    for config in {id(part.config): part.config for part in network.modules() if hasattr(part, "config")}.values():
        config.is_causal, config.use_bidirectional_attention = False, False
        config.sliding_window -= 1


@dataclass(frozen=True, slots=True)
class Adaptation:
    """A change of a network in place, and why it is made."""

    why: str
    change: Callable[[Any], None]


WINDOWS = Adaptation("attention in chunks needs rows of whole windows", _adapt_longformer)

#: The changes, by ``model_type``.
ADAPTED = {
    "bloom": Adaptation("its GELU is a function of Python", _adapt_bloom),
    "convbert": Adaptation(
        "its convolutions read the padding behind a text",
        partial(_blank, places={"key_conv_attn_layer": (2, False), "conv_out_layer": (1, True)}),
    ),
    "led": WINDOWS,
    "longformer": WINDOWS,
    "mobilebert": Adaptation(
        "the last token is read with the padding behind it", partial(_blank, places={"word_embeddings": (1, True)})
    ),
    "nystromformer": Adaptation(
        "its convolution reads the padding behind a text", partial(_blank, places={"conv": (2, False)})
    ),
}


BOTH_SIDES = Adaptation("its masks are made token by token", _adapt_both_sides)

ONE_TOKEN = Adaptation("its head finds its token by the mask", find_by_mask)


def changes_of(network: Any) -> list[Adaptation]:
    """Return the changes of a network, in the order in which they are made."""
    config = network.config
    known = ADAPTED.get(config.model_type)
    if config.model_type == "gemma3_text" and config.use_bidirectional_attention:
        known = BOTH_SIDES
    return ([] if known is None else [known]) + ([ONE_TOKEN] if reads_one_token(network) else [])


def adapt(network: Any) -> Any:
    """Return the network to compile: itself, or a changed copy."""
    if not (changes := changes_of(network)):
        return network
    changed = copy.deepcopy(network)
    for each in changes:
        each.change(changed)
    return changed


def describe(network: Any) -> list[str]:
    """Return what a manifest says about the changes of a network; empty if there are none."""
    return [f"network=adapted: {each.why}" for each in changes_of(network)]
