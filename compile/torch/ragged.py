"""Skip the padding of a batch everywhere except in its attentions.

Linear layers, norms and residuals treat each token alone. So the tokens of all rows go through them as one row without
padding. An attention spreads queries, keys and values out over rows of one length, and collects the tokens again. In a
batch of unequal rows that saves most of the cost of padding. A batch with little padding keeps it and is not copied.

Queries, keys and values are each spread out, head by head, right after their linear layer, while they are in the cache.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from compile.torch.attention import PRODUCTS, attend, compiled, narrow_mask

#: The names of the attentions that have a ragged form, and the names of those forms.
RAGGED_ATTENTIONS = {PRODUCTS: "corelane_ragged_products", "sdpa": "corelane_ragged_sdpa"}

#: The names that the architectures of transformers give the linear layers for queries, keys and values.
NAMES = (("query", "key", "value"), ("q_lin", "k_lin", "v_lin"), ("q_proj", "k_proj", "v_proj"))

#: The attribute of an attention that holds the ``Places`` of the batch.
PLACES = "corelane_places"

#: The number of tokens of a batch is rounded up to a multiple of this, so that there are few shapes: each needs its own
#: kernels.
STEP = 16

#: One token in this many must be padding. With less, skipping it costs more than it saves.
LEAST_PADDING = 32


class Places:
    """Where the tokens of the current batch are; its methods are hooks."""

    def __init__(self, heads: int) -> None:
        self.heads = heads
        self.mask = self.tokens = self.numbers = self.pieces = torch.empty(0)
        self.parts: list[Tensor] = []

    def read(self, _: Any, __: Any, named: dict[str, Any]) -> None:
        """Find the places from the mask of a pass, before the pass runs."""
        self.mask, self.parts = named["attention_mask"], []
        self.tokens, self.numbers, self.pieces = compiled(find_places)(self.mask, self.heads)

    def spread(self, _: Any, __: Any, result: Tensor) -> None:
        """Spread queries, keys or values out, after their layer. The three are expected in that order."""
        self.parts.append(compiled(spread)(result, self.pieces, self.mask, self.heads))

    def take_first(self, _: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Collect the tokens of the first argument into one row, before the first layer."""
        if arguments:
            return (compiled(take)(arguments[0], self.tokens), *arguments[1:]), named
        return arguments, named | {"hidden_states": compiled(take)(named["hidden_states"], self.tokens)}

    def put_back(self, _: Any, __: Any, result: Any) -> Any:
        """Put the tokens back into rows, after the last layer."""
        if isinstance(result, tuple):
            return (compiled(put_back)(result[0], self.numbers, self.mask), *result[1:])
        return compiled(put_back)(result, self.numbers, self.mask)


def find_places(
    mask: Tensor, heads: int, step: int = STEP, least_padding: int = LEAST_PADDING
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the place of each token of a batch, the number of the token at each place, and the pieces for ``spread``.

    A place of padding has the number of the token before it. The tokens are filled up to a multiple of ``step`` with
    the first place. All three are empty if padding is kept. The function is compiled and not traced: a trace would keep
    the numbers of one batch.
    """
    seen = mask.reshape(-1) > 0
    tokens = seen.nonzero().squeeze(1)
    wanted = (max(1, tokens.size(0)) + step - 1) // step * step
    # OpenVINO sums bools up as bools.
    numbers = (seen.to(torch.int64).cumsum(0) - 1).clamp_min(0)
    pieces = numbers.view(mask.size(0), 1, mask.size(1)) * heads + torch.arange(heads).view(1, heads, 1)
    pieces = pieces.reshape(-1)
    if (seen.size(0) - wanted) * least_padding < seen.size(0):
        tokens, numbers, pieces = tokens[:0], tokens[:0], tokens[:0]
    else:
        tokens = torch.cat([tokens, tokens.new_zeros(wanted - tokens.size(0))])
    return tokens, numbers, pieces


def take(rows: Tensor, tokens: Tensor) -> Tensor:
    """Return the tokens of rows × length × size as one row."""
    flat = rows.flatten(0, 1)
    return (flat if tokens.numel() == 0 else flat.index_select(0, tokens)).unsqueeze(0)


def put_back(ragged: Tensor, numbers: Tensor, mask: Tensor) -> Tensor:
    """Return rows × length × size, made from one row of tokens."""
    flat = ragged.squeeze(0)
    flat = flat if numbers.numel() == 0 else flat.index_select(0, numbers)
    return flat.view(mask.size(0), mask.size(1), ragged.size(2))


def spread(ragged: Tensor, pieces: Tensor, mask: Tensor, heads: int) -> Tensor:
    """Return rows × heads × length × size, made from one row of tokens. A token has a piece for each head."""
    rows, length, size = mask.size(0), mask.size(1), ragged.size(2) // heads
    if pieces.numel() == 0:
        return ragged.view(rows, length, heads, size).transpose(1, 2)
    return ragged.reshape(-1, size).index_select(0, pieces).view(rows, heads, length, size)


def attend_ragged(inner: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap an attention that works on rows, so that it takes one row of tokens and spreads them out."""

    def attend(module: Any, _: Tensor, __: Tensor, ___: Tensor, mask: Any, **named: Any) -> tuple[Tensor, None]:
        places = getattr(module, PLACES)
        parts, places.parts = places.parts, []
        attended, _ = inner(module, *parts, mask, **named)
        return compiled(take)(attended.flatten(2), places.tokens).unflatten(2, (places.heads, -1)), None

    return attend


def offer_ragged() -> None:
    """Register the ragged attentions with transformers; idempotent."""
    for usual, inner, mask in ((PRODUCTS, attend, narrow_mask), ("sdpa", sdpa_attention_forward, sdpa_mask)):
        AttentionInterface.register(RAGGED_ATTENTIONS[usual], attend_ragged(inner))
        AttentionMaskInterface.register(RAGGED_ATTENTIONS[usual], mask)


def leave_padding_out(network: Any, layers: list[Any], attentions: list[Any], heads: int) -> None:
    """Change a network in place so that its layers skip padding. Each layer has a ragged attention.

    Raises LookupError if an attention has other linear layers than expected.
    """
    offer_ragged()
    places = Places(heads)
    for each in attentions:
        setattr(each, PLACES, places)
        for part in find_parts(each):
            part.register_forward_hook(places.spread)
    network.register_forward_pre_hook(places.read, with_kwargs=True)
    layers[0].register_forward_pre_hook(places.take_first, with_kwargs=True)
    layers[-1].register_forward_hook(places.put_back)


def find_parts(attention: Any) -> list[Any]:
    """Return the layers for queries, keys and values; raises LookupError if they have other names."""
    for names in NAMES:
        if all(hasattr(attention, name) for name in names):
            return [getattr(attention, name) for name in names]
    raise LookupError("the attention has no linear layers for queries, keys and values")
