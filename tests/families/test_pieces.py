"""Models whose tokenizer is a SentencePiece file alone compile, and their logits are those of transformers."""

from pathlib import Path

import pytest

from compile.build import build
from compile.model.loading import quiet_transformers
from corelane.settings import Settings
from tests.families.official import Official
from tests.families.pieces import FAMILIES, Pieces, save_network
from tests.families.test_architectures import CONTEXTS, LENGTH, QUESTION, STRIDE, check_logits, has_types


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.kind)
def test_a_file_alone_compiles_to_the_logits_of_transformers(family: Pieces, tmp_path: Path) -> None:
    with quiet_transformers():
        folder = save_network(tmp_path / family.kind, family)
        artifact = build(str(folder), settings=Settings(data_dir=tmp_path / "data"), buckets="2x96", dtype="fp32")
        official = Official(folder, with_types=has_types(artifact))
        check_logits(artifact, {context: official.read(QUESTION, context, LENGTH, STRIDE) for context in CONTEXTS})
