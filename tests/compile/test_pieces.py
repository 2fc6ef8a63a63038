"""Tokenizers that are a SentencePiece file alone: read as transformers and SentencePiece itself read them."""

import sys
from pathlib import Path

import pytest
from sentencepiece import SentencePieceProcessor
from transformers import AutoTokenizer

from corelane.errors import ModelRefused, SetupError
from tests.compile.test_model import load
from tests.families.pieces import FAMILIES, Pieces, save_network
from tests.families.texts import MULTI_SCRIPT

TEXTS = (*MULTI_SCRIPT, "It was  built\tin 1874.", " a", "▁", "x" * 40, "-")


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.kind)
def test_a_file_alone_is_read_as_transformers_and_sentencepiece_read_it(family: Pieces, tmp_path: Path) -> None:
    folder = save_network(tmp_path / family.kind, family)
    model = load(folder)
    official = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    own = SentencePieceProcessor(model_file=str(folder / family.file))
    for text in TEXTS:
        assert model.tokenizer.encode(text).ids == official(text)["input_ids"]
        if family.shift is not None:
            ids = model.tokenizer.encode(text, add_special_tokens=False).ids
            known = [at + family.shift if at != own.unk_id() else official.unk_token_id for at in own.encode(text)]
            assert ids == known, text


@pytest.mark.parametrize("missing", ["sentencepiece", "google.protobuf"])
def test_without_the_packages_one_sentence_says_what_to_install(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_network(tmp_path / "xlm-roberta", FAMILIES[-1])
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(
        SetupError, match=r"is sentencepiece.bpe.model alone, which needs .* and protobuf: run .*compil"
    ):
        load(folder)


@pytest.mark.parametrize("content", [b"", b"IQ== 0\nIg== 1\n", b"\x80damaged"])
def test_a_file_of_another_library_is_refused(content: bytes, tmp_path: Path) -> None:
    folder = save_network(tmp_path / "xlm-roberta", FAMILIES[-1])
    (folder / FAMILIES[-1].file).write_bytes(content)
    with pytest.raises(ModelRefused, match=r"is no file of SentencePiece: save its tokenizer as tokenizer\.json"):
        load(folder)
