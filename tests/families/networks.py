"""Tiny random networks of the official classes, saved as a user's model is."""

from pathlib import Path
from typing import Any

from tests.families.rows import SIZES, Row
from tests.families.tokenizers import make_tokenizer


def save_tiny(row: Row, folder: Path) -> Path:
    """Save a tiny model of an architecture in Hugging Face layout; of one that is refused, the config alone."""
    from transformers import AutoConfig

    if row.refused:
        config = AutoConfig.for_model(row.kind)
        config.architectures = [head_of(row.kind)]
        config.save_pretrained(folder)
        return folder
    fast = make_tokenizer(row.tokenizer or tokenizer_of(row.kind))
    make_network(row, fast).save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


def make_network(row: Row, fast: Any) -> Any:
    """Return a network that answers questions, with the random weights of a seed."""
    import torch
    from transformers import AutoModelForQuestionAnswering, set_seed

    set_seed(7)
    network = AutoModelForQuestionAnswering.from_config(make_config(row, fast)).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.dim() > 1:
                parameter.mul_(row.larger)
    return network


def head_of(kind: str) -> str:
    """Return the class that answers questions of an architecture."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES

    return str(MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES[kind])


def tokenizer_of(kind: str) -> str:
    """Return the class of tokenizers that transformers names for an architecture."""
    from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES

    return str(TOKENIZER_MAPPING_NAMES[kind])


def make_config(row: Row, fast: Any) -> Any:
    """Return a config of small sizes."""
    from transformers import AutoConfig

    kind = type(AutoConfig.for_model(row.kind))
    usual = kind()
    aliases = getattr(kind, "attribute_map", {})
    settings: dict[str, Any] = {
        name: size
        for name, size in SIZES.items()
        if hasattr(usual, name) and name not in aliases and not isinstance(getattr(kind, name, None), property)
    }
    settings["vocab_size"] = len(fast)
    for name in ("pad", "bos", "eos", "sep", "cls"):
        number = getattr(fast, f"{name}_token_id", None)
        if hasattr(usual, f"{name}_token_id"):
            settings[f"{name}_token_id"] = 0 if number is None and name == "pad" else number
    return kind(**{**settings, **row.config})
