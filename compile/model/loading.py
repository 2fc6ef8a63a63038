"""Load a model with transformers, and refuse an unfit one before time is spent on it.

A loaded model is eager, in fp32, and has a trained question-answering head and a fast tokenizer. Corelane knows how
its tokenizer joins question and context.
"""

import json
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModelForQuestionAnswering, AutoTokenizer
from transformers.utils import logging

from compile.model.families import attend_in_full, check_family
from compile.model.source import CONFIG_NAME, ModelSource
from compile.model.template import read_template
from corelane.artifacts.manifest import TokenizerSpec
from corelane.engine.buckets import Bucket, fitting_buckets
from corelane.errors import CompileFailed, ModelRefused
from corelane.errors.reasons import first_line

#: One of the config's ``architectures`` must end with HEAD. SIMPLE may follow: XLNet also has a head with beam search.
HEAD, SIMPLE = "ForQuestionAnswering", "Simple"

#: Files that hold a tokenizer's vocabulary. Without any of them transformers makes an empty vocabulary.
VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model")


@dataclass(frozen=True, slots=True)
class SourceModel:
    """An eager fp32 network and its tokenizer; ``max_positions`` is None if the network has no limit."""

    source: ModelSource
    network: Any
    tokenizer: Tokenizer
    spec: TokenizerSpec
    max_positions: int | None

    @property
    def weights(self) -> int:
        """The number of the network's weights."""
        return int(sum(parameter.numel() for parameter in self.network.parameters()))


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Keep the library's progress bars and warnings off the terminal; errors still come as exceptions."""
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            # DeBERTa's code causes this warning dozens of times.
            warnings.filterwarnings("ignore", message="To copy construct from a tensor", category=UserWarning)
            yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def load_model(source: ModelSource) -> SourceModel:
    """Load and check a model; raises ModelRefused with the reason."""
    config = _read_config(source)
    longest = attend_in_full(config)
    fast = _load_tokenizer(source)
    network = _load_network(source, config)
    _check_vocabulary(source, fast, network)
    tokenizer = Tokenizer.from_str(fast.backend_tokenizer.to_str())
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return SourceModel(
        source, network, tokenizer, read_template(source.label, fast, config), _count_positions(network, longest)
    )


def check_lengths(model: SourceModel, ladder: Sequence[Bucket]) -> None:
    """Check that the model has positions for each bucket; raises CompileFailed, with a ladder that fits."""
    fitting = ",".join(map(str, fitting_buckets(model.max_positions)))
    for bucket in ladder:
        if model.max_positions is not None and bucket.length > model.max_positions:
            raise CompileFailed(
                f"bucket {bucket} is longer than {model.source.label} can read: it has positions for "
                f"{model.max_positions} tokens; leave `--buckets` out, or take --buckets {fitting}"
            )


def _read_config(source: ModelSource) -> Any:
    path = source.folder / CONFIG_NAME
    try:
        raw = json.loads(path.read_bytes())
        config = AutoConfig.from_pretrained(source.folder)
    except (OSError, KeyError, ValueError, AttributeError, TypeError) as error:
        kind = "" if isinstance(error, json.JSONDecodeError) else ": unknown architecture"
        raise ModelRefused(f"{path} cannot be used{kind}: {first_line(error)}") from error
    architectures = raw.get("architectures") or []
    check_family(source.label, config)
    if not any(str(name).removesuffix(SIMPLE).endswith(HEAD) for name in architectures):
        made_for = ", ".join(map(str, architectures)) or "nothing in particular"
        raise ModelRefused(
            f"{source.label} has no question-answering head: it is made for {made_for}, and …{HEAD} is needed"
        )
    return config


def _load_tokenizer(source: ModelSource) -> Any:
    if not any(any(source.folder.glob(pattern)) for pattern in VOCABULARIES):
        raise ModelRefused(f"{source.folder} holds no tokenizer: none of {', '.join(VOCABULARIES)}")
    try:
        tokenizer = AutoTokenizer.from_pretrained(source.folder)
    except (OSError, KeyError, ValueError, AttributeError, TypeError, ImportError) as error:
        raise ModelRefused(f"the tokenizer of {source.label} does not load: {first_line(error)}") from error
    if not tokenizer.is_fast:
        raise ModelRefused(f"{source.label} has no fast tokenizer (tokenizer.json), which character offsets need")
    return tokenizer


def _load_network(source: ModelSource, config: Any) -> Any:
    try:
        network, loading = AutoModelForQuestionAnswering.from_pretrained(
            source.folder,
            config=config,
            attn_implementation="eager",
            dtype=torch.float32,
            output_loading_info=True,
        )
    except (OSError, KeyError, ValueError, RuntimeError, AttributeError, TypeError, SafetensorError) as error:
        raise ModelRefused(f"the weights of {source.label} do not load: {first_line(error)}") from error
    if absent := sorted({*loading["missing_keys"], *(str(key) for key in loading["mismatched_keys"])}):
        raise ModelRefused(
            f"{source.label} lacks weights, {absent[0]} among {len(absent)}: it was not trained to answer questions"
        )
    return network.eval()


def _check_vocabulary(source: ModelSource, fast: Any, network: Any) -> None:
    known, embedded = max(fast.get_vocab().values()) + 1, int(network.get_input_embeddings().weight.shape[0])
    if known > embedded:
        raise ModelRefused(
            f"the tokenizer of {source.label} is another model's: it makes {known} tokens, the weights know {embedded}"
        )


def _count_positions(network: Any, longest: int | None) -> int | None:
    """Return how many tokens a row may have, at most ``longest`` if that is given; None if there is no limit.

    RoBERTa and related models count positions from the padding id on, so they have fewer than the config says.
    """
    positions = _embedded_positions(network)
    limits = [limit for limit in (positions, longest) if limit is not None]
    return min(limits, default=None)


def _embedded_positions(network: Any) -> int | None:
    limit = getattr(network.config, "max_position_embeddings", None)
    if not isinstance(limit, int) or limit <= 0:
        return None
    for name, module in network.named_modules():
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            return limit - int(module.padding_idx) - 1
    return limit


def save_tokenizer(model: SourceModel, path: Path) -> None:
    """Write the tokenizer, which neither truncates nor pads."""
    path.write_text(model.tokenizer.to_str(), encoding="utf-8")
