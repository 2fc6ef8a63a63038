"""Real SentencePiece files, trained on a few texts, in the layout of each family that has them."""

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.families.networks import make_network
from tests.families.rows import ROWS
from tests.families.texts import CORPUS

#: Pieces of a small vocabulary; the trainer makes fewer of so few texts.
PIECES = 500


@dataclass(frozen=True)
class Pieces:
    """The file of a family: its name, what its trainer is told, and its settings beside the file.

    A token's id is that of its piece and ``shift``. It is None where transformers reads rare characters or
    capitals in another way than SentencePiece itself.
    """

    kind: str
    file: str
    trained: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    shift: int | None = None


#: Ids of special pieces where they are not those of the trainer.
DEBERTA = {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3}
DEBERTA_NAMES = {"pad_piece": "[PAD]", "bos_piece": "[CLS]", "eos_piece": "[SEP]", "unk_piece": "[UNK]"}
ALBERT = {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1, "control_symbols": ["[CLS]", "[SEP]", "[MASK]"]}
T5 = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
BYTES = {"model_type": "bpe", "byte_fallback": True}

FAMILIES = (
    Pieces("albert", "spiece.model", ALBERT),
    Pieces("camembert", "sentencepiece.bpe.model", shift=4),
    Pieces("deberta-v2", "spm.model", {**DEBERTA, **DEBERTA_NAMES}, {"do_lower_case": False, "vocab_type": "spm"}),
    Pieces("llama", "tokenizer.model", BYTES, {"tokenizer_class": "LlamaTokenizer", "legacy": True}),
    Pieces("t5", "spiece.model", T5, shift=0),
    Pieces("xlm-roberta", "sentencepiece.bpe.model", shift=1),
)


def save_pieces(folder: Path, family: Pieces) -> Path:
    """Train a family's file into a folder; return its path."""
    from sentencepiece import SentencePieceTrainer

    made = io.BytesIO()
    settings: dict[str, Any] = {"vocab_size": PIECES, "minloglevel": 2, **family.trained}
    settings["hard_vocab_limit"] = settings.get("model_type") == "bpe"
    SentencePieceTrainer.train(sentence_iterator=iter(CORPUS), model_writer=made, **settings)
    path = folder / family.file
    path.write_bytes(made.getvalue())
    return path


def save_network(folder: Path, family: Pieces) -> Path:
    """Save a tiny random network of a family whose tokenizer is its file alone."""
    from transformers import AutoTokenizer

    row = next(each for each in ROWS if each.kind == family.kind)
    folder.mkdir()
    save_pieces(folder, family)
    if family.settings:
        (folder / "tokenizer_config.json").write_text(json.dumps(family.settings))
    (folder / "config.json").write_text(json.dumps({"model_type": family.kind}))
    fast = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    make_network(row, fast).save_pretrained(folder)
    return folder
