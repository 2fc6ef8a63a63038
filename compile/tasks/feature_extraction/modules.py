"""Read how a model in the format of sentence-transformers makes vectors of texts.

``modules.json`` lists what a text goes through: the network, a pooling, perhaps a normalisation. A class is named by
its path, which differs between versions of the library; its last part does not.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from corelane.errors import ModelRefused
from corelane.tasks.feature_extraction.pooling import POOLINGS

MODULES_NAME = "modules.json"

#: The older names of poolings, in the order in which several of them stand.
OLD_POOLINGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}

#: A tokenizer without a longest row says one of 10^30 tokens.
NO_LIMIT = 1_000_000

#: The facts of a model without these files: sentence-transformers makes vectors like this from a plain network.
PLAIN: Mapping[str, Any] = {"pooling": ["mean"], "normalize": False}


def read_modules(label: str, folder: Path) -> dict[str, Any]:
    """Return how vectors are made, as ``facts`` of a manifest; raise ModelRefused for what Corelane does not do."""
    if not (folder / MODULES_NAME).is_file():
        return dict(PLAIN)
    modules = _read(label, folder / MODULES_NAME)
    try:
        kinds = [str(module["type"]).rpartition(".")[2] for module in modules]
        paths = [str(module["path"]) for module in modules]
    except (TypeError, KeyError):
        raise ModelRefused(f"{MODULES_NAME} of {label} makes no sense: each module needs `type` and `path`") from None
    known = (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"])
    if kinds not in known:
        raise ModelRefused(
            f"{label} makes its vectors by {', '.join(kinds) or 'nothing'}: Corelane does Transformer, Pooling and "
            "Normalize, in this order, and no other module"
        )
    if paths[0]:
        raise ModelRefused(f"{label} has its network in the folder {paths[0]!r}: move its files beside {MODULES_NAME}")
    return read_pooling(label, folder / paths[1] / "config.json") | {
        "normalize": "Normalize" in kinds,
        **_read_network(label, folder),
        **_read_prompts(label, folder / "config_sentence_transformers.json"),
    }


def read_pooling(label: str, path: Path) -> dict[str, Any]:
    """Return the poolings that a file names, in the older or the newer form; raise ModelRefused."""
    config = _read(label, path)
    named = config.get("pooling_mode")
    if named is None:
        named = [name for key, name in OLD_POOLINGS.items() if config.get(key)] or ["mean"]
    poolings = [named] if isinstance(named, str) else list(named)
    if unknown := [name for name in poolings if name not in POOLINGS]:
        raise ModelRefused(f"{label} pools by {unknown[0]!r}, which Corelane does not: {', '.join(POOLINGS)}")
    return {"pooling": poolings, "pools_prompt": bool(config.get("include_prompt", True))}


def _read_network(label: str, folder: Path) -> dict[str, Any]:
    """Return the settings of the network's texts. If they have no longest row, the tokenizer's counts."""
    config, tokenizer = (
        _read(label, path) if (path := folder / name).is_file() else {}
        for name in ("sentence_bert_config.json", "tokenizer_config.json")
    )
    longest = config.get("max_seq_length") or tokenizer.get("model_max_length")
    found: dict[str, Any] = {"lowercase": bool(config.get("do_lower_case"))}
    return found | ({"max_length": int(longest)} if longest and longest < NO_LIMIT else {})


def _read_prompts(label: str, path: Path) -> dict[str, Any]:
    config = _read(label, path) if path.is_file() else {}
    prompts = {str(name): str(text or "") for name, text in (config.get("prompts") or {}).items()}
    default = config.get("default_prompt_name")
    if default is not None and default not in prompts:
        raise ModelRefused(f"{label} has no prompt {default!r}, which it names as its default")
    return {"prompts": prompts, "default_prompt": default, "dimensions": config.get("truncate_dim")}


def _read(label: str, path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise ModelRefused(f"{path.name} of {label} cannot be read: {error}") from error
