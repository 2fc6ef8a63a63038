"""Change networks whose code cannot be compiled as it stands, or that read their padding; answers stay the same.

The official network stays the reference: it reads each row alone and without padding, and the adapted one must give its
logits. Changes are modules that take the place of others, and hooks; a copy of a network copies both.
"""

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class Padding:
    """The mask of the batch that a network is reading: 1 for its tokens, 0 for padding."""

    mask: Tensor

    def __call__(self, _module: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Keep the mask; a hook before the network."""
        self.mask = kwargs["attention_mask"]
        return args, kwargs


class Blank:
    """Sets what stands at padding to zero, as the edge of a text has it; ``axis`` of the tensor counts tokens."""

    def __init__(self, padding: Padding, axis: int) -> None:
        self.padding = padding
        self.axis = axis

    def __call__(self, _module: nn.Module, args: Any, output: Any = None) -> Any:
        """Blank a module's input if this is a hook before it, its output if it is one after it."""
        if output is not None:
            return output * self._mask(output)
        return (args[0] * self._mask(args[0]), *args[1:])

    def _mask(self, tensor: Tensor) -> Tensor:
        mask = self.padding.mask
        shape = [1] * tensor.dim()
        shape[0], shape[self.axis] = mask.size(0), mask.size(1)
        return mask.reshape(shape).to(tensor.dtype)


class GlobalQuestion:
    """Has Longformer attend to all tokens before the first separator, its question; a hook before the network.

    The network does so itself, but only for batches of questions without a row of padding.
    """

    def __init__(self, sep_id: int) -> None:
        self.sep_id = sep_id

    def __call__(self, _module: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Add the mask of global attention."""
        separators = (kwargs["input_ids"] == self.sep_id).long().cumsum(dim=1)
        question = (separators == 0).long() * kwargs["attention_mask"]
        return args, kwargs | {"global_attention_mask": question}


class WindowedAttention(nn.Module):
    """Longformer's attention in whole products instead of chunks, for rows of any length.

    A token attends to those within its window and to global ones; a global token attends to all, by projections of its
    own.
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
        """Attend; the masks are rows × length. Every token sees itself, so that padding holds numbers."""
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


def _blank(network: Any, places: Callable[[str], tuple[int, bool] | None]) -> None:
    """Blank padding at the modules that ``places`` names by an axis and whether their output is blanked."""
    padding = Padding()
    network.register_forward_pre_hook(padding, with_kwargs=True)
    for name, module in network.named_modules():
        if (place := places(name.rpartition(".")[2])) is not None:
            axis, after = place
            register = module.register_forward_hook if after else module.register_forward_pre_hook
            register(Blank(padding, axis))


def _adapt_convbert(network: Any) -> None:
    """ConvBERT's convolutions run over the end of a text."""
    _blank(network, {"key_conv_attn_layer": (2, False), "conv_out_layer": (1, True)}.get)


def _adapt_mobilebert(network: Any) -> None:
    """MobileBERT's tokens are read with their neighbours, the last one with the padding behind it."""
    _blank(network, {"word_embeddings": (1, True)}.get)


def _adapt_nystromformer(network: Any) -> None:
    """Nyströmformer's convolution runs over the end of a text."""
    _blank(network, {"conv": (2, False)}.get)


def _adapt_longformer(network: Any) -> None:
    """Longformer's attention in chunks needs rows of whole windows, and three separators in each."""
    for module in list(network.modules()):
        for name, child in list(module.named_children()):
            if hasattr(child, "one_sided_attn_window_size"):
                setattr(module, name, WindowedAttention(child))
    # Whole windows are no longer needed: the network would pad to them.
    network.config.attention_window = 2
    if hasattr(network, "longformer"):
        network.register_forward_pre_hook(GlobalQuestion(int(network.config.sep_token_id)), with_kwargs=True)


def _adapt_bloom(network: Any) -> None:
    """BLOOM's GELU is a function of Python, for its gradient's sake."""
    for layer in network.transformer.h:
        layer.mlp.gelu_impl = nn.GELU(approximate="tanh")


ADAPTED: dict[str, Callable[[Any], None]] = {
    "bloom": _adapt_bloom,
    "convbert": _adapt_convbert,
    "led": _adapt_longformer,
    "longformer": _adapt_longformer,
    "mobilebert": _adapt_mobilebert,
    "nystromformer": _adapt_nystromformer,
}


def is_adapted(network: Any) -> bool:
    """Tell whether a network is compiled in a changed form."""
    return network.config.model_type in ADAPTED


def adapt(network: Any) -> Any:
    """Return the network to compile: itself, or a changed copy."""
    if not is_adapted(network):
        return network
    changed = copy.deepcopy(network)
    ADAPTED[network.config.model_type](changed)
    return changed
