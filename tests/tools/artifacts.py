"""Small artifacts made on the spot: a tiny random BERT with a vocabulary of words, compiled by the real compiler."""

import fcntl
import hashlib
import shutil
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from corelane.artifacts.calibration import Calibration, Curve
from corelane.artifacts.instructions import instruction_sets, sets_up_to
from corelane.artifacts.manifest import MANIFEST_NAME, Artifact, digest_file, read_artifact
from corelane.settings import Settings

ROOT = Path(__file__).parents[2]

#: What an artifact depends on.
MAKERS = (
    *("compile", "corelane/engine", "corelane/artifacts", "corelane/plugins/backends", "models"),
    "tests/tools/artifacts.py",
)

#: Its buckets: fewer than a user gets, as each is verified, which takes CPU seconds.
BUILT_IN_BUCKETS = "16x64,8x128,4x256,3x384"

#: Where artifacts are kept between runs; `make clean` removes it.
KEPT = ROOT / ".pytest_cache" / "made"

WORD_LIST = """
    the a of in on was is when who where what river city tower ada lovelace byron paris berlin 1889 330 metres tall
    built wrote first program night day red blue green . , ? ! ( ) ' - 東 京 é
"""

WORDS = tuple(WORD_LIST.split())

CALIBRATION = Calibration(
    version="0",
    dtype="fp32",
    answerable=Curve(intercept=-1.3, slope=0.2),
    right=Curve(intercept=2.5, slope=2.0),
    file="made.json",
    file_digest="0" * 64,
    questions=100,
    created_at="2026-01-01T00:00:00Z",
)


def save_tiny_model(folder: Path, seed: int = 7) -> Path:
    """Save a random two-layer BERT with a question-answering head, in Hugging Face layout; each seed is a version."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer
    from tokenizers.processors import TemplateProcessing
    from transformers import BertConfig, BertForQuestionAnswering, BertTokenizerFast, set_seed

    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)] + [str(d) for d in range(10)]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *letters, *(f"##{c}" for c in letters)]
    ids = {token: number for number, token in enumerate(dict.fromkeys(vocabulary))}
    tokenizer = Tokenizer(WordPiece(ids, unk_token="[UNK]"))
    tokenizer.normalizer = BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = BertPreTokenizer()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])],
    )
    fast = BertTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="[UNK]",
        sep_token="[SEP]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        mask_token="[MASK]",
    )
    set_seed(seed)
    config = BertConfig(
        vocab_size=len(ids),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=128,
        pad_token_id=0,
    )
    folder.mkdir(parents=True, exist_ok=True)
    BertForQuestionAnswering(config).eval().save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


def keep(name: str, make: Callable[[Path], object]) -> Path:
    """Return a folder that ``make`` has filled, not to be written to. It is made unless an earlier run, or another
    process of this one, did so with the same code, models, libraries and kind of CPU.
    """
    facts = [*map(version, ("torch", "transformers", "openvino")), *instruction_sets(), sys.version]
    made_by = hashlib.sha256(" ".join(facts).encode())
    for path in [path for maker in MAKERS for path in (ROOT / maker, *sorted((ROOT / maker).rglob("*")))]:
        if path.is_file() and "__pycache__" not in path.parts:
            made_by.update(f"{path.relative_to(ROOT)} {digest_file(path)}".encode())
    place = KEPT / name
    folder = place / made_by.hexdigest()[:16]
    place.mkdir(parents=True, exist_ok=True)
    with (place / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            for old in place.glob("*/"):
                shutil.rmtree(old)
            aside = place / "aside"
            make(aside)
            aside.rename(folder)
    return folder


def keep_built_in() -> Path:
    """Return a data folder with the built-in model."""
    return keep("built-in", lambda data: compile_model("qa-minilm", data, BUILT_IN_BUCKETS, "auto", "torchscript"))


def keep_tiny_model() -> Path:
    """Return the random model's folder."""
    return keep("tiny-model", lambda folder: save_tiny_model(folder / "tiny-qa")) / "tiny-qa"


def keep_tiny_artifact(format: Literal["torchscript", "openvino"]) -> Path:
    """Return a data folder with the random model compiled to a format."""
    source, dtype = str(keep_tiny_model()), "fp32" if format == "torchscript" else "int8"
    return keep(f"tiny-{format}", lambda data: compile_model(source, data, "4x32,2x64", dtype, format))


def compile_model(source: str, data: Path, buckets: str, dtype: str = "fp32", format: str = "auto") -> Artifact:
    """Compile ``source`` below ``data``."""
    from compile.build import build

    return build(source, settings=Settings(data_dir=data), buckets=buckets, dtype=dtype, format=format)


def add_for_kind(artifact: Artifact, root: Path, folder: str, kind: str, **changes: str) -> Artifact:
    """Copy an artifact below a root as one that was chosen for a kind of CPU; ``changes`` are of its manifest."""
    made = {"tools": artifact.manifest.tools | {"cpu": " ".join(sets_up_to(kind))}} | changes
    manifest = artifact.manifest.model_copy(update=made)
    path = Path(shutil.copytree(artifact.path, root / manifest.name / manifest.version / folder))
    (path / MANIFEST_NAME).write_text(manifest.model_dump_json())
    return read_artifact(path)
