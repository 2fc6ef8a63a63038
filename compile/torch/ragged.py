"""Leave the padding of a batch out of everything but its attentions.

Linear layers, norms and residuals treat each token alone. So the tokens of all rows go through them as one row, without
padding. An attention spreads queries, keys and values out over rows of one length, and takes the tokens out again. In a
batch of unequal rows that saves most of what padding costs.

The linear layers for queries, keys and values, which read the same tokens, become one: a product of three times the
width takes less time than three, most where a batch is small. All three are spread out in one step, head by head.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from compile.torch.attention import PRODUCTS, attend, narrow_mask
from corelane.engine.backends.cpu import torchscript_warnings_silenced

#: The names of the attentions that can be ragged, and of them when they are.
RAGGED_ATTENTIONS = {PRODUCTS: "corelane_ragged_products", "sdpa": "corelane_ragged_sdpa"}

#: What the architectures of transformers call the linear layers for queries, keys and values.
NAMES = (("query", "key", "value"), ("q_lin", "k_lin", "v_lin"), ("q_proj", "k_proj", "v_proj"))

#: Queries, keys and values.
PARTS = 3

#: The attributes of an attention: the places of the batch, and its joined layers.
PLACES, JOINED = "corelane_places", "corelane_joined"

#: Tokens of a batch are a multiple of this, so that they have few shapes: each needs kernels of its own.
STEP = 16


class JoinedLinears(nn.Module):
    """The linear layers for queries, keys and values as one; the last result stays until it is taken."""

    def __init__(self, linears: list[nn.Linear]) -> None:
        super().__init__()
        width = linears[0].out_features
        self.linear = nn.Linear(linears[0].in_features, PARTS * width)
        biases = [torch.zeros(width) if each.bias is None else each.bias.data for each in linears]
        self.linear.weight.data = torch.cat([each.weight.data for each in linears])
        self.linear.bias.data = torch.cat(biases)
        self.result: Tensor | None = None

    def multiply_queries(self, factor: float) -> None:
        """Multiply what the layer of the queries gives."""
        width = self.linear.out_features // PARTS
        self.linear.weight.data[:width] *= factor
        self.linear.bias.data[:width] *= factor


class JoinedPart(nn.Module):
    """Stands where one of the layers was; the first runs all."""

    def __init__(self, joined: JoinedLinears, number: int) -> None:
        super().__init__()
        self.joined = joined
        self.number = number

    def forward(self, inputs: Tensor) -> Tensor:
        """Return this layer's output."""
        if self.joined.result is None:
            self.joined.result = self.joined.linear(inputs)
        return self.joined.result.chunk(PARTS, -1)[self.number]


class Places:
    """Where the tokens of the batch under way are; its methods are hooks."""

    def __init__(self) -> None:
        self.mask = self.tokens = self.numbers = torch.empty(0)
        self.spread: Tensor | None = None

    def read(self, _: Any, __: Any, named: dict[str, Any]) -> None:
        """Find them by a pass's mask, before it."""
        self.mask, self.spread = named["attention_mask"], None
        self.tokens, self.numbers = compiled(find_places)(self.mask)

    def take_first(self, _: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Take the tokens out of the first argument, before the first layer."""
        if arguments:
            return (compiled(take)(arguments[0], self.tokens), *arguments[1:]), named
        return arguments, named | {"hidden_states": compiled(take)(named["hidden_states"], self.tokens)}

    def put_back(self, _: Any, __: Any, result: Any) -> Any:
        """Put the tokens back into rows, after the last layer."""
        if isinstance(result, tuple):
            return (compiled(put_back)(result[0], self.numbers, self.mask), *result[1:])
        return compiled(put_back)(result, self.numbers, self.mask)


def find_places(mask: Tensor, step: int = STEP) -> tuple[Tensor, Tensor]:
    """Return the place of each token of a batch, and for each place the number of a token.

    At a place of padding that is the token before it. The tokens are filled up to a multiple of ``step``, or to all
    places, with the first place. It is compiled and not traced: a trace would keep the numbers of one batch.
    """
    seen = mask.reshape(-1) > 0
    tokens = seen.nonzero().squeeze(1)
    wanted = min((max(1, tokens.size(0)) + step - 1) // step * step, seen.size(0))
    tokens = torch.cat([tokens, tokens.new_zeros(wanted - tokens.size(0))])
    return tokens, (seen.cumsum(0) - 1).clamp_min(0)


def take(rows: Tensor, tokens: Tensor) -> Tensor:
    """Return the tokens of rows × length × size as one row."""
    return rows.flatten(0, 1).index_select(0, tokens).unsqueeze(0)


def put_back(ragged: Tensor, numbers: Tensor, mask: Tensor) -> Tensor:
    """Return rows × length × size of a row of tokens."""
    return ragged.squeeze(0).index_select(0, numbers).view(mask.size(0), mask.size(1), ragged.size(2))


def find_spread(numbers: Tensor, mask: Tensor, heads: int) -> Tensor:
    """Return which pieces of all tokens, one a part and head, make up parts × rows × heads × length."""
    pieces = torch.arange(3 * heads).view(3, 1, heads, 1)
    return (numbers.view(1, mask.size(0), 1, mask.size(1)) * (3 * heads) + pieces).reshape(-1).to(torch.int32)


def spread(joined: Tensor, pieces: Tensor, mask: Tensor, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries, keys and values, each rows × heads × length × size, of one row of tokens."""
    size = joined.size(2) // (3 * heads)
    parts = joined.reshape(-1, size).index_select(0, pieces)
    query, key, value = parts.view(3, mask.size(0), heads, mask.size(1), size).unbind(0)
    return query, key, value


@cache
def compiled(function: Callable[..., Any]) -> Any:
    """Return a function as TorchScript, which a trace takes in whole."""
    with torchscript_warnings_silenced():
        return torch.jit.script(function)


def attend_ragged(inner: Callable[..., Any]) -> Callable[..., Any]:
    """Return an attention of one row of tokens that spreads them out for an attention in rows."""

    def attend(module: Any, query: Tensor, _: Tensor, __: Tensor, mask: Any, **named: Any) -> tuple[Tensor, None]:
        places, joined, heads = getattr(module, PLACES), getattr(module, JOINED), query.size(1)
        if places.spread is None:
            places.spread = compiled(find_spread)(places.numbers, places.mask, heads)
        parts = compiled(spread)(joined.result, places.spread, places.mask, heads)
        joined.result = None
        attended, _ = inner(module, *parts, mask, **named)
        return compiled(take)(attended.flatten(2), places.tokens).unflatten(2, (heads, -1)), None

    return attend


def offer_ragged() -> None:
    """Register the ragged attentions with transformers; idempotent."""
    for usual, inner, mask in ((PRODUCTS, attend, narrow_mask), ("sdpa", sdpa_attention_forward, sdpa_mask)):
        AttentionInterface.register(RAGGED_ATTENTIONS[usual], attend_ragged(inner))
        AttentionMaskInterface.register(RAGGED_ATTENTIONS[usual], mask)


def leave_padding_out(network: Any, layers: list[Any], attentions: list[Any]) -> list[JoinedLinears]:
    """Change a network in place whose layers have one of the attentions each; it has to attend by a ragged attention.

    Raises LookupError if an attention has other linear layers than it should.
    """
    offer_ragged()
    places, joined = Places(), []
    for each in attentions:
        joined.append(join_linears(each))
        setattr(each, JOINED, joined[-1])
        setattr(each, PLACES, places)
    network.register_forward_pre_hook(places.read, with_kwargs=True)
    layers[0].register_forward_pre_hook(places.take_first, with_kwargs=True)
    layers[-1].register_forward_hook(places.put_back)
    return joined


def join_linears(attention: Any) -> JoinedLinears:
    """Join an attention's linear layers in place; raises LookupError if it has no three alike."""
    for names in NAMES:
        linears: list[Any] = [getattr(attention, name, None) for name in names]
        if all(type(each) is nn.Linear for each in linears) and len({each.weight.shape for each in linears}) == 1:
            joined = JoinedLinears(linears)
            for number, name in enumerate(names):
                setattr(attention, name, JoinedPart(joined, number))
            return joined
    raise LookupError("the attention has no linear layers for queries, keys and values that are alike")
