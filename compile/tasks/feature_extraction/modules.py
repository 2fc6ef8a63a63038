"""Read how a model in the format of sentence-transformers makes vectors of texts.

Its modules are the network, a pooling, and then layers that read the pooled vector: Dense, LayerNorm, Normalize.
"""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from compile.tasks.sentence_files import (
    MODULES,
    SETTINGS,
    Module,
    list_modules,
    longest_row,
    read_file,
    read_network,
    read_weights,
)
from corelane.errors import ModelRefused
from corelane.tasks.feature_extraction.pooling import ACTIVATIONS, EMPTY_PROMPTS, POOLINGS

#: The older names of poolings, in the order in which several of them stand.
OLD_POOLINGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}

#: What sentence-transformers calls a model that makes vectors.
MADE_AS = "SentenceTransformer"

#: The one input and output that Corelane knows of a layer behind the pooling.
POOLED = "sentence_embedding"

#: What looks up the vector of each token in a table.
STATIC = "StaticEmbedding"

#: The longest rows of such a table, which has no limit of its own, in tokens.
STATIC_LONGEST = 8192

#: The modules that make the first vector of a text.
FIRST = (["Transformer", "Pooling"], [STATIC])

#: The layers, and what each may say of itself.
LAYERS: Mapping[str, set[str]] = {
    "Dense": {"in_features", "out_features", "bias", "activation_function"},
    "LayerNorm": {"dimension"},
    "Normalize": set(),
}


def read_modules(label: str, folder: Path, config: Any) -> dict[str, Any]:
    """Return how vectors are made, as ``facts`` of a manifest; raise ModelRefused for what Corelane does not do.

    Without the library's files vectors are made as it makes them of a plain network.
    """
    modules = list_modules(label, folder)
    if not (folder / MODULES).is_file():
        chats = read_file(label, folder / "tokenizer_config.json").get("chat_template")
        if chats or (folder / "chat_template.jinja").is_file():
            raise ModelRefused(
                f"sentence-transformers writes texts into the chat template of {label}, and Corelane does not: save "
                "the tokenizer without it, or the model with a Transformer that reads text alone"
            )
        made_for = (getattr(config, "architectures", None) or [""])[0]
        last = made_for.endswith("ForCausalLM") and getattr(config, "is_causal", True)
        return {"pooling": ["lasttoken" if last else "mean"], "normalize": False} | longest_row(label, folder)
    kinds = [module.kind for module in modules]
    first = next((way for way in FIRST if kinds[: len(way)] == way), None)
    if first is None or not set(kinds[len(first) :]) <= set(LAYERS):
        raise ModelRefused(
            f"{label} makes its vectors by {', '.join(kinds) or 'nothing'}: Corelane does "
            f"{' or '.join(' and '.join(way) for way in FIRST)}, then {', '.join(LAYERS)}, and no other module"
        )
    layers = [_read_layer(label, module) for module in modules[len(first) :]]
    last = bool(layers) and layers[-1]["kind"] == "Normalize"
    if first == [STATIC]:
        cut = read_file(label, modules[0].folder / "tokenizer.json").get("truncation") or {}
        facts: dict[str, Any] = {"pooling": ["mean"], "max_length": cut.get("max_length", STATIC_LONGEST)}
    else:
        facts = read_pooling(label, modules[1].folder / "config.json")
        facts |= read_network(label, folder, "feature-extraction")
    facts["normalize"] = last
    if layers := layers[: len(layers) - last]:
        facts["layers"] = layers
    return facts | _read_settings(label, folder / SETTINGS)


def _read_layer(label: str, module: Module) -> dict[str, Any]:
    """Return a layer as the engine computes it; raise ModelRefused for one that it does not know."""
    said = read_file(label, module.folder / "config.json")
    ends = {said.pop(name, None) or POOLED for name in ("module_input_name", "module_output_name")}
    asked = {name for name, value in said.items() if value not in (None, False)}
    if ends != {POOLED} or (unknown := asked - LAYERS[module.kind]):
        what = f"sets {min(unknown)!r}" if ends == {POOLED} else f"reads or makes {', '.join(sorted(ends - {POOLED}))}"
        raise ModelRefused(f"{label} has the module {module.folder.name}, which {what}: Corelane does not")
    layer: dict[str, Any] = {"kind": module.kind}
    if module.kind == "Dense":
        named = str(said.get("activation_function", "torch.nn.modules.activation.Tanh"))
        library, _, layer["activation"] = named.rpartition(".")
        if library.partition(".")[0] != "torch" or layer["activation"] not in ACTIVATIONS:
            raise ModelRefused(
                f"{label} has the activation {named}, which Corelane does not: torch's {', '.join(ACTIVATIONS)}"
            )
        layer |= {"inputs": int(said["in_features"]), "outputs": int(said["out_features"])}
    return layer


def pack_layers(label: str, folder: Path, layers: Sequence[Mapping[str, Any]]) -> bytes:
    """Return the weights of a model's layers as an artifact has them: fp32, by the layer's number and their name."""
    arrays: dict[str, Any] = {}
    modules = [module for module in list_modules(label, folder) if module.kind in LAYERS]
    for number, module in enumerate(modules[: len(layers)]):
        if module.kind == "Normalize":
            continue
        its = {name.rpartition(".")[2]: value.numpy() for name, value in read_weights(label, module).items()}
        layer = layers[number]
        shape = (layer["outputs"], layer["inputs"]) if module.kind == "Dense" else its.get("bias", np.zeros(0)).shape
        if "weight" not in its or its["weight"].shape != shape or not set(its) <= {"weight", "bias"}:
            raise ModelRefused(f"{label} has weights in {module.folder.name} that are not those of its config.json")
        arrays |= {f"{number}.{name}": value for name, value in its.items()}
    packed = io.BytesIO()
    np.savez(packed, **arrays)
    return packed.getvalue()


def read_pooling(label: str, path: Path) -> dict[str, Any]:
    """Return the poolings that a file names, in the older or the newer form; raise ModelRefused."""
    config = read_file(label, path)
    named = config.get("pooling_mode")
    if named is None:
        named = [name for key, name in OLD_POOLINGS.items() if config.get(key)] or ["mean"]
    poolings = [named] if isinstance(named, str) else list(named)
    if unknown := [name for name in poolings if name not in POOLINGS]:
        raise ModelRefused(f"{label} pools by {unknown[0]!r}, which Corelane does not: {', '.join(POOLINGS)}")
    return {"pooling": poolings, "pools_prompt": bool(config.get("include_prompt", True))}


def _read_settings(label: str, path: Path) -> dict[str, Any]:
    config = read_file(label, path)
    if (kind := config.get("model_type", MADE_AS)) != MADE_AS:
        raise ModelRefused(f"{label} is a {kind} of sentence-transformers, which would not use its modules for vectors")
    if (most := config.get("truncate_dim")) is not None and (type(most) is not int or most < 1):
        raise ModelRefused(f"{label} has a `truncate_dim` of {most}: take a number from 1 on, or null")
    prompts = {str(name): str(text or "") for name, text in (config.get("prompts") or {}).items()}
    default = config.get("default_prompt_name")
    if default is not None and default not in {*EMPTY_PROMPTS, *prompts}:
        raise ModelRefused(f"{label} has no prompt {default!r}, which it names as its default")
    return {"prompts": prompts, "default_prompt": default, "dimensions": most}
