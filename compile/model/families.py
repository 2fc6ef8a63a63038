"""Facts about single architectures: which cannot be served and why, and which attend in full to short texts.

Everything else is tried: a model is served if its compiled results are the eager model's. ``tests/families`` has a row
for each architecture of transformers.
"""

from typing import Any

from corelane.errors import ModelRefused

#: The page that tells an operator what to do about a model that does not pass.
FAMILIES = "docs/models.md lists the architectures that work, and what to do about others"

LAYOUT = "it reads the places of words on a page, and a passage has none"

NO_FAST_TOKENIZER = "its tokenizer exists in Python alone, and the fast one that gives character offsets does not"

#: Architectures that are refused, by ``model_type``, with the reason.
REFUSED = {
    "canine": "it reads characters without a tokenizer, and Corelane needs one that gives offsets",
    "flaubert": NO_FAST_TOKENIZER,
    "fnet": "it mixes all tokens of a row by a Fourier transform, padding included, so its results depend on the batch",
    "funnel": "it pools neighbouring tokens, padding included, so its results depend on the batch",
    "layoutlmv2": LAYOUT,
    "layoutlmv3": LAYOUT,
    "lilt": LAYOUT,
    "lxmert": "it reads pictures",
    "markuplm": "it reads the paths of HTML elements, and a passage has none",
    "mra": "its attention is written for CUDA alone; elsewhere transformers returns zeros in its place",
    "reformer": "it hashes tokens at random, so the same text gets other results from time to time",
    "roc_bert": NO_FAST_TOKENIZER,
    "xlm": NO_FAST_TOKENIZER,
    "yoso": "its attention is a function of Python that TorchScript cannot hold",
}

#: Architectures with sparse attention. It equals full attention on rows of only a few blocks.
SPARSE = ("big_bird", "bigbird_pegasus")


def check_family(label: str, config: Any) -> None:
    """Raise ModelRefused with the reason if an architecture is known not to work."""
    kind = str(getattr(config, "model_type", ""))
    reason = REFUSED.get(kind)
    if kind == "nystromformer" and config.num_landmarks != config.segment_means_seq_len:
        reason = "it means groups of tokens by their places in a row of one length, padding included"
    if reason is not None:
        raise ModelRefused(f"{label} is a {kind}, which Corelane does not serve: {reason} ({FAMILIES})")


def attend_in_full(config: Any) -> int | None:
    """Replace sparse attention by full attention; return the length of a row up to which the result is the same.

    BigBird itself attends in full to rows of up to that many tokens. None if the architecture has no sparse attention.
    """
    if config.model_type not in SPARSE or config.attention_type != "block_sparse":
        return None
    longest = (5 + 2 * int(config.num_random_blocks)) * int(config.block_size)
    config.attention_type = "original_full"
    return longest
