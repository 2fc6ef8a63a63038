"""The network that is trained: its start, the dtype that is fast here, and how it is saved."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForQuestionAnswering, set_seed

from compile.model.loading import SourceModel, load_model, quiet_transformers
from compile.model.reference import wrap
from compile.model.source import CONFIG_NAME, SERVING_NAME, SMALL_FILES, find_source
from compile.torch.head import HEADS
from corelane.artifacts.instructions import FAST_BY, instruction_sets
from corelane.errors import ModelRefused
from corelane.tasks.question_answering.tune.training.plan import Precision

#: Weights of the answering head: a model that was not trained to answer questions starts with random ones.
HEAD = tuple(f"{name}." for name in HEADS)


@dataclass(frozen=True, slots=True)
class TrainableModel:
    """A network in training, and its trainable tensors by name; ``start`` holds their first values in fp32."""

    source: SourceModel
    module: Any
    device: str
    weights: dict[str, nn.Parameter]
    start: dict[str, Tensor]


def save_start(model: str, models_dir: Path, folder: Path, seed: int) -> None:
    """Write the model that training starts from, with a random head if only that is missing; raises ModelRefused."""
    source = find_source(model, models_dir)
    with quiet_transformers():
        set_seed(seed)
        try:
            config = AutoConfig.from_pretrained(source.folder, trust_remote_code=False)
            network, loading = AutoModelForQuestionAnswering.from_pretrained(
                source.folder,
                config=config,
                trust_remote_code=False,
                dtype=torch.float32,
                output_loading_info=True,
            )
        except (OSError, KeyError, ValueError, RuntimeError, TypeError, SafetensorError) as error:
            raise ModelRefused(f"{source.label} cannot be loaded to answer questions: {error}") from error
        absent = {*loading["missing_keys"], *(str(key) for key in loading["mismatched_keys"])}
        if odd := sorted(key for key in absent if not key.startswith(HEAD)):
            raise ModelRefused(f"{source.label} lacks weights, {odd[0]} among {len(odd)}")
        save(network, source.folder, folder, torch.float32)


def save(network: Any, files: Path, folder: Path, dtype: torch.dtype, threshold: float = 0.0) -> None:
    """Write a network in Hugging Face's layout, with a folder's tokenizer and a no-answer threshold. Atomic."""
    new = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    for pattern in SMALL_FILES:
        for path in files.glob(pattern):
            if path.name not in (CONFIG_NAME, SERVING_NAME):
                shutil.copyfile(path, new / path.name)
    state = {name: tensor.to(dtype).contiguous() for name, tensor in network.state_dict().items()}
    network.save_pretrained(new, state_dict=state)
    (new / SERVING_NAME).write_text(json.dumps({"no_answer_threshold": threshold}) + "\n", encoding="utf-8")
    config = json.loads((new / CONFIG_NAME).read_bytes())
    config |= {"architectures": [type(network).__name__], "dtype": str(dtype).removeprefix("torch.")}
    (new / CONFIG_NAME).write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    for path in new.iterdir():
        # Weights are written so that only their owner can read them. The other files of a model are readable by all.
        path.chmod(0o644)
    shutil.rmtree(folder, ignore_errors=True)
    new.rename(folder)


def load_trainable(folder: Path, precision: Precision, dropout: float, frozen: bool) -> TrainableModel:
    """Load a network for training. ``frozen`` means that word embeddings are not trained."""
    with quiet_transformers():
        model = load_model(find_source(str(folder), folder.parent))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        model.network.set_attn_implementation("sdpa")
    set_dropout(model.network, dropout)
    if frozen:
        model.network.get_input_embeddings().weight.requires_grad_(False)
    start = {name: each.detach().clone() for name, each in model.network.named_parameters() if each.requires_grad}
    module = wrap(model).to(device, choose_dtype(precision, device)).train()
    weights = {name: each for name, each in model.network.named_parameters() if each.requires_grad}
    return TrainableModel(model, module, device, weights, start)


def set_dropout(network: nn.Module, share: float) -> None:
    """Drop this share of the embeddings' outputs and no others: random numbers are expensive on a CPU."""
    for name, module in network.named_modules():
        if isinstance(module, nn.Dropout):
            module.p = share if "embeddings" in name else 0.0
        elif isinstance(getattr(module, "attention_dropout", None), float):
            module.attention_dropout = 0.0


def choose_dtype(precision: Precision, device: str) -> torch.dtype:
    """Return the dtype of products: bf16 if this machine is fast in it, or else fp32."""
    if precision == "auto":
        fast = device == "cuda" or any(name in FAST_BY["bf16"] for name in instruction_sets())
        return torch.bfloat16 if fast else torch.float32
    return torch.bfloat16 if precision == "bf16" else torch.float32


def arguments(model: TrainableModel, *arrays: Any) -> tuple[Tensor, ...]:
    """Return arrays as tensors on the network's device."""
    return tuple(torch.from_numpy(array).to(model.device) for array in arrays)
