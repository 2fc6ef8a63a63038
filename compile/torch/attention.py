"""Attention as plain matrix products, for dtypes in which they are faster than torch's fused attention.

The query is scaled and not the scores, because it is smaller. A padding mask is the same for every query. So the mask
becomes one more column of the keys, and every query gets a 1 in that column, which costs almost nothing.

In bf16 the weights of the values are plain powers of two, and the products are divided by their sums. A softmax would
first look for the largest score, which takes two to three times as long, most where a length is no multiple of 32. The
query's scale includes the factor that makes the weights powers of two. The extra column of the keys also moves a
layer's scores to the middle of bf16's range, by the largest score of the traced text. A text whose scores are 50 larger
still gets a softmax.

The queries of a long text attend in blocks. The scores of all of them at once would not fit the cache: at 8,192 tokens
and 12 heads they are 1.6 GB a layer.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, eager_mask

from corelane.engine.backends.cpu import torchscript_warnings_silenced

#: The name by which a network chooses this attention.
PRODUCTS = "corelane_products"


#: Turns a power of e into one of two.
LOG2E = math.log2(math.e)

#: If the sums of the weights are within these bounds, neither they nor the products with values are rounded to zero or
#: too large for bf16.
LEAST_SUM, MOST_SUM = 2.0**-100, 2.0**120

#: The scores of a layer, which are exponents of 2, are lowered so that the largest of its first text is at most this.
MIDDLE = 48

#: A text of more tokens than the first attends in blocks of as many queries as the second. At 1,024 to 4,096 tokens
#: that took 0.6 to 0.7 of the time (0.4 with a mask for each query). At 512 tokens and less it gained nothing.
LONGEST_WHOLE, BLOCK = 512, 128

#: The attribute of a module whose queries arrive already multiplied by its scale and ``LOG2E``.
MULTIPLIED = "corelane_multiplied"

#: How far the scores of each layer are lowered.
EXCESSES: WeakKeyDictionary[Any, int] = WeakKeyDictionary()


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attend to values by the products of queries and keys.

    All three arguments are rows × heads × length × size; the result is rows × length × heads × size.
    """
    factor = LOG2E * (query.size(-1) ** -0.5 if scaling is None else scaling)
    query = query if hasattr(module, MULTIPLIED) else query * factor
    if attention_mask is not None and hides_keys_alone(attention_mask):
        ones = query.new_ones(1, 1, 1, 1).expand(*query.shape[:3], 1)
        hidden = (attention_mask[:, :, :1, :] * LOG2E - excess(module, query, key)).clamp_min(
            torch.finfo(query.dtype).min
        )
        column = hidden.transpose(2, 3).expand(*key.shape[:3], 1)
        query, key = torch.cat([query, ones], -1), torch.cat([key, column], -1)
        attention_mask = None
    return compiled(weigh)(query, key.transpose(2, 3), value, attention_mask), None


def weigh(
    query: Tensor,
    keys: Tensor,
    value: Tensor,
    mask: Tensor | None,
    longest_whole: int = LONGEST_WHOLE,
    block: int = BLOCK,
) -> Tensor:
    """Weigh values by the products of queries and keys, whole or in blocks; the mask is of every query.

    Compiled and not traced, because every pass decides by its length. The constants are arguments, as TorchScript has
    no globals.
    """
    step = query.size(2) if query.size(2) <= longest_whole else block
    weighed: list[Tensor] = []
    for number, part in enumerate(query.split(step, 2)):
        if mask is None:
            weighed.append(weigh_block(part, keys, value).transpose(1, 2))
        else:
            weighed.append(weigh_masked(part, keys, value, mask.split(step, 2)[number]).transpose(1, 2))
    return torch.cat(weighed, 1)


def weigh_masked(query: Tensor, keys: Tensor, value: Tensor, mask: Tensor, log2e: float = LOG2E) -> Tensor:
    """Weigh values by a softmax of query times key and a mask for each query."""
    return torch.matmul(torch.softmax((torch.matmul(query, keys) / log2e).add_(mask), dim=-1), value)


def weigh_block(
    query: Tensor,
    keys: Tensor,
    value: Tensor,
    least_sum: float = LEAST_SUM,
    most_sum: float = MOST_SUM,
    log2e: float = LOG2E,
) -> Tensor:
    """Weigh values by two to the power of query times key, or by a softmax if those powers are too large.

    Every pass decides which of the two to use.
    """
    weights = torch.matmul(query, keys).exp2_()
    sums = weights.sum(-1, keepdim=True)
    least, most = torch.aminmax(sums)
    if float(least) >= least_sum and float(most) <= most_sum:
        return torch.matmul(weights, value) / sums
    return torch.matmul(torch.softmax(torch.matmul(query, keys) / log2e, dim=-1), value)


def excess(module: Any, query: Tensor, key: Tensor) -> int:
    """Return how far a layer's largest score is above ``MIDDLE``. It is measured once, on the layer's first text.

    So the traced network and the eager one, with which it is compared, subtract the same number at every length.
    """
    if module not in EXCESSES:
        largest = float(torch.matmul(query.float(), key.float().transpose(2, 3)).max())
        EXCESSES[module] = max(0, math.ceil(largest - MIDDLE))
    return EXCESSES[module]


@cache
def compiled(function: Callable[..., Any]) -> Any:
    """Return a function as TorchScript, which a trace includes as it is."""
    with torchscript_warnings_silenced():
        return torch.jit.script(function)


def hides_keys_alone(mask: Tensor) -> bool:
    """Return whether a mask, rows × 1 × length × length, is the same for every query; called once, while tracing."""
    return bool((mask == mask[:, :, :1, :]).all())


def narrow_mask(**arguments: Any) -> Tensor | None:
    """Return transformers' mask for the first query alone if it is the same for every query; else the whole mask.

    While tracing, the whole mask is made too, to find that out; the trace keeps only what is used. Outside a trace a
    batch without padding has no mask.
    """
    mask: Tensor | None = eager_mask(**arguments)
    if mask is None:
        return None
    return eager_mask(**arguments | {"q_length": 1}) if hides_keys_alone(mask) else mask


def offer_products() -> None:
    """Register this attention with transformers; idempotent."""
    AttentionInterface.register(PRODUCTS, attend)
    AttentionMaskInterface.register(PRODUCTS, narrow_mask)
