"""The files that sentence-transformers adds to a model: which modules it has, and the settings beside them.

A module's class is named by its path, which differs between versions of the library; its last part does not.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from corelane.errors import ModelRefused, first_line

MODULES, SETTINGS = "modules.json", "config_sentence_transformers.json"

#: The settings of the network's texts: the library reads the first of these files that says anything.
NETWORK_SETTINGS = tuple(
    f"sentence_{kind}_config.json"
    for kind in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)

#: The folder of a module, as the library names it. Only files in such folders belong to a model's version.
MODULE_FOLDER = re.compile(r"[^/\\]*_[^/\\]*")

#: All files of this format that change results.
SENTENCE_FILES = (
    MODULES,
    SETTINGS,
    *NETWORK_SETTINGS,
    *(f"*_*/{name}" for name in ("config.json", "tokenizer.json", "model.safetensors", "pytorch_model.bin")),
    *("chat_template.jinja", "additional_chat_templates/*.jinja"),
)

#: What of the network's settings may be there: what is read, and what changes no result.
KNOWN = {"max_seq_length", "do_lower_case", "transformer_task", "modality_config", "module_output_name", "unpad_inputs"}

#: The same for arguments of transformers: they choose kernels or how files are fetched.
HARMLESS = {
    *("attn_implementation", "torch_dtype", "dtype", "trust_remote_code", "add_pooling_layer"),
    *("use_fast", "padding_side"),
}

#: A tokenizer without a longest row says one of 10^30 tokens.
NO_LIMIT = 1_000_000

#: What the library takes of a network, by what the network is for.
OUTPUTS = {
    "feature-extraction": "last_hidden_state",
    "sequence-classification": "logits",
    "text-generation": "logits",
}


@dataclass(frozen=True, slots=True)
class Module:
    """One module that a text goes through; ``folder`` has its files."""

    kind: str
    folder: Path


def read_file(label: str, path: Path, kind: type = dict) -> Any:
    """Return what a JSON file says, nothing if it does not exist; raise ModelRefused if it is not JSON of that kind."""
    try:
        said = json.loads(path.read_bytes()) if path.is_file() else kind()
    except (OSError, ValueError, RecursionError) as error:
        raise ModelRefused(f"{path.name} of {label} cannot be read: {first_line(error)}") from error
    if not isinstance(said, kind):
        raise ModelRefused(f"{path.name} of {label} makes no sense: it is no {'object' if kind is dict else 'list'}")
    return said


def read_weights(label: str, module: Module) -> dict[str, torch.Tensor]:
    """Return a module's weights by name; raise ModelRefused if they do not load."""
    safe, older = module.folder / "model.safetensors", module.folder / "pytorch_model.bin"
    try:
        found = load_file(safe) if safe.is_file() else torch.load(older, map_location="cpu", weights_only=True)
        return {str(name): value.float() for name, value in found.items()}
    except Exception as error:
        # A file of another kind can fail in any way.
        raise ModelRefused(f"the weights of {module.kind} of {label} do not load: {first_line(error)}") from error


def list_modules(label: str, folder: Path) -> Sequence[Module]:
    """Return a model's modules in order, the network first; none if it lacks the file. Raises ModelRefused."""
    listed = read_file(label, folder / MODULES, list)
    try:
        types = [str(module["type"]) for module in listed]
        paths = [str(module["path"]) for module in listed]
    except (TypeError, KeyError):
        raise ModelRefused(f"{MODULES} of {label} makes no sense: each module needs `type` and `path`") from None
    if foreign := [name for name in types if not name.startswith("sentence_transformers.")]:
        raise ModelRefused(f"{label} needs code of its own, {foreign[0]}, which Corelane never runs")
    kinds = [name.rpartition(".")[2] for name in types]
    if kinds[:1] == ["Transformer"] and paths[0]:
        raise ModelRefused(f"{label} has its network in the folder {paths[0]!r}: move its files beside {MODULES}")
    if unknown := [path for path in paths[paths[:1] in ([""], ["."]) :] if not MODULE_FOLDER.fullmatch(path)]:
        raise ModelRefused(f"{label} has a module in the folder {unknown[0]!r}: name it as in `1_Pooling`")
    return [Module(kind, folder / path) for kind, path in zip(kinds, paths, strict=True)]


def read_network(label: str, folder: Path, task: str, *, messages: bool = False) -> dict[str, Any]:
    """Return the settings of the network's texts as facts; raise ModelRefused for those that are not read here.

    ``task`` is the library's own name of what the network is for. If ``messages`` may be read, ``chat`` has the
    settings of a template that texts are written into.
    """
    found: Any = next((said for name in NETWORK_SETTINGS if (said := read_file(label, folder / name))), {})
    arguments: dict[str, Any] = {}
    for names in (("model_args", "model_kwargs"), ("config_args", "config_kwargs")):
        arguments |= {key: value for name in names for key, value in (found.pop(name, None) or {}).items()}
    its_tokenizer = found.pop("processor_kwargs", None) or found.pop("tokenizer_args", None) or {}
    longest = its_tokenizer.pop("model_max_length", None) or found.get("max_seq_length")
    processing = found.pop("processing_kwargs", None) or {}
    chat = processing.pop("chat_template", None) or {}
    asked = [(key, found[key]) for key in found.keys() - KNOWN]
    asked += [*arguments.items(), *its_tokenizer.items(), *processing.items()]
    if unknown := sorted({key for key, value in asked if value not in (None, {})} - HARMLESS):
        raise ModelRefused(
            f"{label} sets {unknown[0]!r} for its network in sentence_bert_config.json, which Corelane does not read: "
            "save the model without it"
        )
    reads = {"text": {"method": "forward", "method_output_name": OUTPUTS[task]}}
    made_for, way = found.get("transformer_task", task), dict(found.get("modality_config", reads))
    message = way.pop("message", None) if messages else None
    if made_for != task or way not in ({}, reads):
        raise ModelRefused(
            f"{label} uses its network for {made_for} by {json.dumps(way)}, which Corelane does not: it reads texts "
            f"alone, for {task} by {json.dumps(reads)}"
        )
    read = {"lowercase": bool(found.get("do_lower_case")), **longest_row(label, folder, longest)}
    return read if message is None else read | {"chat": chat | {"format": message.get("format")}}


def longest_row(label: str, folder: Path, said: Any = None) -> dict[str, int]:
    """Return how many tokens the library reads at once as a fact: what a model's file said, or else its tokenizer.

    With a tokenizer's word alone the library counts the config's positions too.
    """
    longest = said or read_file(label, folder / "tokenizer_config.json").get("model_max_length")
    if longest is None or longest >= NO_LIMIT:
        return {}
    positions = None if said else read_file(label, folder / "config.json").get("max_position_embeddings")
    return {"max_length": min(int(longest), positions or int(longest))}
