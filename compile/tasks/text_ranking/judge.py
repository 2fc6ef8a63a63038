"""A language model as a network of one logit: that of a token that says yes, less that of one that says no."""

from typing import Any

import torch
import transformers

from corelane.errors import ModelRefused

#: Largest |Δlogit| of the network that is made, relative to logits above 1, and the tokens on which it is tried.
NEAR, TRIED = 1e-4, 8


def judge_by_tokens(label: str, network: Any, yes: Any, no: Any) -> Any:
    """Return a language model as a classifier of its last token with one label; raise ModelRefused if it is none.

    Its head is one row of weights, instead of one for each token of the vocabulary.
    """
    config, last = network.config, network.get_output_embeddings().weight
    if not all(isinstance(each, int) and 0 <= each < len(last) for each in (yes, 0 if no is None else no)):
        raise ModelRefused(f"{label} scores texts by the tokens {yes} and {no}, and its vocabulary has {len(last)}")
    tried = torch.arange(TRIED)[None] % len(last)
    with torch.inference_mode():
        logits = network(input_ids=tried).logits[0, -1]
    # None: the last token counts, whatever its id.
    config.num_labels, config.pad_token_id = 1, None
    if (kind := transformers.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING.get(type(config), None)) is None:
        raise ModelRefused(f"{label} is a {config.model_type}, which transformers does not make a classifier of")
    with torch.device("meta"):
        judge = kind(config)
    setattr(judge, judge.base_model_prefix, network.base_model)
    judge.score = torch.nn.Linear(last.size(1), 1, bias=False)
    judge.score.weight.data = (last[yes] if no is None else last[yes] - last[no]).detach().clone()[None]
    expected = float(logits[yes] if no is None else logits[yes] - logits[no])
    with torch.inference_mode():
        found = float(judge.eval()(input_ids=tried).logits)
    if not abs(found - expected) <= NEAR * max(1.0, abs(expected)):
        raise ModelRefused(
            f"{label} does more to the logits of its tokens than its last layer, which Corelane does not: "
            "take a form of it for sequence classification"
        )
    return judge
