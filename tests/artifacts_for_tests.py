"""Small artifacts made on the spot: a tiny random BERT with a vocabulary of words, compiled by the real compiler."""

import fcntl
import hashlib
import shutil
from pathlib import Path

from corelane.artifacts.calibration import Calibration, Curve
from corelane.artifacts.instructions import sets_up_to
from corelane.artifacts.manifest import MANIFEST_NAME, Artifact, digest_file, read_artifact
from corelane.settings import Settings

ROOT = Path(__file__).parents[1]

#: What an artifact of the built-in model depends on.
MAKERS = ("compile", "corelane/engine", "corelane/artifacts/manifest.py", "models")

#: Its buckets: fewer than a user gets, as each is verified, which takes CPU seconds.
BUILT_IN_BUCKETS = "16x64,8x128,4x256,3x384"

#: Where that artifact is kept between runs; `make clean` removes it.
KEPT = ROOT / ".pytest_cache" / "built-in"

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


def keep_built_in() -> Path:
    """Return a data folder with the built-in model, not to be written to. Compile it unless an earlier run, or another
    process of this one, did so with the same code, model, PyTorch and kind of CPU.
    """
    import torch
    import transformers

    libraries = (torch.__version__, transformers.__version__, torch.backends.cpu.get_cpu_capability())
    made_by = hashlib.sha256(" ".join((*libraries, BUILT_IN_BUCKETS)).encode())
    paths = [path for maker in MAKERS for path in (ROOT / maker, *sorted((ROOT / maker).rglob("*")))]
    for path in paths:
        if path.is_file() and "__pycache__" not in path.parts:
            made_by.update(f"{path.relative_to(ROOT)} {digest_file(path)}".encode())
    folder = KEPT / made_by.hexdigest()[:16]
    KEPT.mkdir(parents=True, exist_ok=True)
    with (KEPT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            for old in KEPT.glob("*/"):
                shutil.rmtree(old)
            aside = KEPT / "aside"
            compile_model("qa-minilm", aside, BUILT_IN_BUCKETS, "auto")
            aside.rename(folder)
    return folder


def compile_model(source: str, data: Path, buckets: str, dtype: str = "fp32") -> Artifact:
    """Compile ``source`` below ``data``."""
    from compile.build import build

    return build(source, settings=Settings(data_dir=data), buckets=buckets, dtype=dtype)


def add_for_kind(artifact: Artifact, root: Path, folder: str, kind: str, **changes: str) -> Artifact:
    """Copy an artifact below a root as one that was chosen for a kind of CPU; ``changes`` are of its manifest."""
    made = {"tools": artifact.manifest.tools | {"cpu": " ".join(sets_up_to(kind))}} | changes
    manifest = artifact.manifest.model_copy(update=made)
    path = Path(shutil.copytree(artifact.path, root / manifest.name / manifest.version / folder))
    (path / MANIFEST_NAME).write_text(manifest.model_dump_json())
    return read_artifact(path)
