"""Load a model with transformers, and refuse an unfit one before time is spent on it.

A loaded model is eager, in fp32, and has a trained head for its task and a fast tokenizer. Corelane knows how its
tokenizer puts a row together.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoTokenizer
from transformers.utils import logging

from compile.model.families import attend_in_full, check_family
from compile.model.refusing import NEEDS_CODE, refusing
from compile.model.source import CONFIG_NAME, ModelSource
from compile.model.template import read_template
from compile.model.weights import WHOLE, weight_files
from compile.tasks.sentence_files import read_file
from compile.tasks.task import CompileTask, check_heads, compile_task
from corelane.artifacts.manifest import TOKENIZER_NAME, TokenizerSpec
from corelane.engine.buckets import MIN_LENGTH, Bucket, fitting_buckets
from corelane.errors import CompileFailed, ModelRefused, SetupError
from corelane.errors.extras import install_command

#: Files that hold a tokenizer's vocabulary. Without any of them transformers makes an empty vocabulary.
VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model")

#: Most layers of a network. The deepest that are known have 1,000.
MOST_LAYERS = 2000

#: A number that is not too large for any network.
SMALL = 1_000_000


@dataclass(frozen=True, slots=True)
class SourceModel:
    """An eager fp32 network and its tokenizer; ``max_positions`` is None if the network has no limit.

    ``kept`` are further files that the task's engine reads, by name.
    """

    source: ModelSource
    network: Any
    tokenizer: Tokenizer
    spec: TokenizerSpec
    max_positions: int | None
    task: CompileTask
    facts: Mapping[str, Any]
    kept: Mapping[str, bytes]

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
    label, folder, task = source.label, source.folder, compile_task(source.task)
    with refusing(label, f"{folder / CONFIG_NAME}, or a file beside it, cannot be used"):
        config, fast, network = task.load(label, folder) or (_read_config(source), None, None)
        facts = task.facts(folder, config)
        longest = attend_in_full(config)
    with refusing(label, f"the tokenizer of {label} does not load"):
        fast = fast or _load_tokenizer(source)
        tokenizer = Tokenizer.from_str(fast.backend_tokenizer.to_str())
        tokenizer.no_truncation()
        tokenizer.no_padding()
        facts |= task.read_tokenizer(fast)
        if tokenizer.get_vocab() != fast.get_vocab():
            raise ModelRefused(f"the tokenizer of {label} gives one number to several tokens")
    with refusing(label, f"the weights of {label} do not load"):
        network = network or _load_network(source, config)
        kept = task.keep(label, folder, facts, fast)
    _check_vocabulary(source, fast, network)
    positions = _count_positions(network, longest, facts.get("max_length"))
    if positions is not None and positions < MIN_LENGTH:
        raise ModelRefused(f"{label} reads at most {positions} tokens, and Corelane's shortest rows have {MIN_LENGTH}")
    with refusing(label, f"the tokenizer of {label} cannot be used"):
        spec = read_template(source, fast, config)
    return SourceModel(source, network, tokenizer, spec, positions, task, facts, kept)


def check_lengths(model: SourceModel, ladder: Sequence[Bucket]) -> None:
    """Check that the model has positions for each bucket; raises CompileFailed, which names a ladder that fits."""
    fitting = ",".join(map(str, fitting_buckets(model.max_positions)))
    for bucket in ladder:
        if model.max_positions is not None and bucket.length > model.max_positions:
            raise CompileFailed(
                f"bucket {bucket} is longer than {model.source.label} can read: it has positions for "
                f"{model.max_positions} tokens; leave `--buckets` out, or take --buckets {fitting}"
            )


def _read_config(source: ModelSource) -> Any:
    label, path, task = source.label, source.folder / CONFIG_NAME, compile_task(source.task)
    raw = read_file(label, path)
    if quantised := raw.get("quantization_config") or raw.get("compression_config"):
        method = quantised.get("quant_method", "a method without a name")
        raise ModelRefused(
            f"the weights of {label} are quantised ({method}), and Corelane compiles full ones: take the model that it "
            "was made from"
        )
    if named := raw.get("transformers_weights"):
        raise ModelRefused(f"{path} has its weights in {named} (`transformers_weights`): call them {WHOLE[0]}")
    _check_numbers(source, raw)
    with refusing(label, f"{path} cannot be used"):
        config = AutoConfig.from_pretrained(source.folder, trust_remote_code=False)
    check_family(label, config)
    check_heads(task, label, raw.get("architectures") or [])
    task.check(label, source.folder, config)
    return config


def _check_numbers(source: ModelSource, raw: Mapping[str, Any]) -> None:
    """Refuse a config whose numbers exceed what its weights can hold: such a network would take all memory or time."""
    held = sum(path.stat().st_size for path in weight_files(source.label, source.folder))
    for name, value in raw.items():
        if isinstance(value, int) and value > (most := MOST_LAYERS if "layer" in name else max(held, SMALL)):
            raise ModelRefused(f"{CONFIG_NAME} of {source.label} does not fit its weights: {name!r} is beyond {most:,}")


def _load_tokenizer(source: ModelSource) -> Any:
    if not any(any(source.folder.glob(pattern)) for pattern in VOCABULARIES):
        raise ModelRefused(f"{source.folder} holds no tokenizer: none of {', '.join(VOCABULARIES)}")
    if not (source.folder / VOCABULARIES[0]).is_file():
        _check_pieces(source)
    tokenizer = AutoTokenizer.from_pretrained(source.folder, trust_remote_code=False)
    if not tokenizer.is_fast:
        raise ModelRefused(f"{source.label} has no fast tokenizer (tokenizer.json), which character offsets need")
    if tokenizer.split_special_tokens:
        raise ModelRefused(
            f"{source.label} reads special tokens in a text as plain words (`split_special_tokens` of "
            "tokenizer_config.json), which tokenizer.json cannot say: save its tokenizer without it"
        )
    return tokenizer


def _check_pieces(source: ModelSource) -> None:
    """Refuse SentencePiece files that cannot be read: transformers would take them for those of another library."""
    for path in source.folder.glob("*.model"):
        try:
            import google.protobuf  # noqa: F401
            from sentencepiece import SentencePieceProcessor

            SentencePieceProcessor(model_file=str(path))
        except ImportError:
            raise SetupError(
                f"the tokenizer of {source.label} is {path.name} alone, which needs sentencepiece and protobuf: "
                f"run `{install_command('compile')}`"
            ) from None
        except (RuntimeError, OSError):
            raise ModelRefused(
                f"{path.name} of {source.label} is no file of SentencePiece: save its tokenizer as {VOCABULARIES[0]}"
            ) from None


def _load_network(source: ModelSource, config: Any) -> Any:
    task = compile_task(source.task)
    if not weight_files(source.label, source.folder):
        raise ModelRefused(f"{source.folder} holds no weights: neither {' nor '.join(WHOLE)}, whole or in parts")
    network, loading = getattr(transformers, task.loader_of(config)).from_pretrained(
        source.folder,
        config=config,
        trust_remote_code=False,
        attn_implementation="eager",
        dtype=torch.float32,
        output_loading_info=True,
        ignore_mismatched_sizes=True,
    )
    if absent := task.untrained(loading):
        told = f"lacks weights, {absent[0]} among {len(absent)}: it was not trained to {task.trained_to}"
        raise ModelRefused(f"{source.label} {NEEDS_CODE if hasattr(config, 'auto_map') else told}")
    for name, its, wanted in sorted(loading["mismatched_keys"]):
        sizes = " × ".join(map(str, its)), " × ".join(map(str, wanted))
        raise ModelRefused(f"{source.label} has {name} of {sizes[0]} weights, and its config.json says {sizes[1]}")
    return task.finish(source.label, source.folder, network.eval())


def _check_vocabulary(source: ModelSource, fast: Any, network: Any) -> None:
    known, embedded = max(fast.get_vocab().values()) + 1, int(network.get_input_embeddings().weight.shape[0])
    if known > embedded:
        raise ModelRefused(
            f"the tokenizer of {source.label} is another model's: it makes {known} tokens, the weights know {embedded}"
        )


def _count_positions(network: Any, longest: int | None, said: int | None) -> int | None:
    """Return how many tokens a row may have, at most ``longest`` and ``said`` if given; None if there is no limit.

    Rotary places have no end, so what a model's files said counts, even if its config names fewer positions. RoBERTa
    and related models count positions from the padding id on, so they have fewer than the config says.
    """
    turned = any(name.endswith("rotary_emb") for name, _ in network.named_modules())
    positions = None if turned and said else _embedded_positions(network)
    return min((limit for limit in (positions, longest, said) if limit is not None), default=None)


def _embedded_positions(network: Any) -> int | None:
    limit = getattr(network.config, "max_position_embeddings", None)
    if not isinstance(limit, int) or limit <= 0:
        return None
    for name, module in network.named_modules():
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            return limit - int(module.padding_idx) - 1
    return limit


def save_files(model: SourceModel, folder: Path) -> None:
    """Write the tokenizer, which neither truncates nor pads, and what else the task's engine reads."""
    (folder / TOKENIZER_NAME).write_text(model.tokenizer.to_str(), encoding="utf-8")
    for name, content in model.kept.items():
        (folder / name).write_bytes(content)
