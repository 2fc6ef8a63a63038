"""Heads that read one token of a row and find it by its id: the last that is no padding, or the last ``</s>``.

transformers needs the same number of ``</s>`` in all rows of a batch, and takes what a caller writes into padding for
tokens. Here the mask says what padding is, and each row has its own place, as if it were read alone.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import SequenceClassifierOutput


def reads_one_token(network: Any) -> bool:
    """Return whether the head of a network reads one token that it finds by its id, or at the end of the row."""
    # Heads that label each token have the same names.
    is_one = type(network).__name__.endswith("ForSequenceClassification")
    return is_one and (_has_summary(network) or _head_of(network) is not None)


def find_by_mask(network: Any) -> None:
    """Make a network find the token that its head reads by the mask, in place."""
    if _has_summary(network):
        place = LastVisible()
        network.register_forward_pre_hook(place.note, with_kwargs=True)
        network.sequence_summary.register_forward_pre_hook(place)
    else:
        network.forward = partial(read_one_token, network)


class LastVisible:
    """A hook that gives a summary of the last token of a batch the last one that is no padding."""

    mask: Tensor

    def note(self, _module: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Keep the mask of a batch. Registered before the network."""
        self.mask = kwargs["attention_mask"]
        return args, kwargs

    def __call__(self, _module: nn.Module, args: Any) -> Any:
        """Return the one token as all that there is to summarise."""
        return (_take(args[0], self.mask)[:, None], *args[1:])


def read_one_token(network: Any, input_ids: Tensor, attention_mask: Tensor, **given: Any) -> SequenceClassifierOutput:
    """Run a network, its head on the token at the place that it has in a row read alone."""
    config = network.config.get_text_config()
    counted = attention_mask
    if hasattr(network, "classification_head"):
        # MBart begins its decoder with the last token that is no padding by its id.
        input_ids = input_ids.masked_fill(attention_mask == 0, config.pad_token_id)
        counted = attention_mask * input_ids.eq(config.eos_token_id)
        if hasattr(network, "_shift_right"):
            given["decoder_input_ids"] = network._shift_right(input_ids)
    elif config.pad_token_id is not None:
        counted = attention_mask * input_ids.ne(config.pad_token_id)
    hidden = network.base_model(input_ids=input_ids, attention_mask=attention_mask, **given)[0]
    return SequenceClassifierOutput(logits=_head_of(network)(_take(hidden, counted)))


def _has_summary(network: Any) -> bool:
    summary = getattr(network, "sequence_summary", None)
    return getattr(summary, "summary_type", "") in ("last", "cls_index")


def _head_of(network: Any) -> Any:
    score = getattr(network, "score", None)
    return score if isinstance(score, nn.Linear) else getattr(network, "classification_head", None)


def _take(hidden: Tensor, counted: Tensor) -> Tensor:
    """Return the vector of each row's last counted token, or else of its first token."""
    places = torch.arange(counted.size(1), device=counted.device)
    at = (places * (counted > 0)).amax(dim=1)
    return hidden.gather(1, at[:, None, None].expand(-1, 1, hidden.size(-1))).squeeze(1)
