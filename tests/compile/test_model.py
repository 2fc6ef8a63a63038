import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from transformers import AutoModel

from compile.model.loading import SourceModel, check_lengths, load_model, quiet_transformers, save_files
from compile.model.source import find_source
from corelane.engine.buckets import Bucket
from corelane.errors import CompileFailed, ModelRefused
from tests.compile.conftest import Edit
from tests.compile.tiny_models import save_tiny_roberta

ROOT = Path(__file__).parents[2]


def load(folder: Path) -> SourceModel:
    with quiet_transformers():
        return load_model(find_source(str(folder)))


def test_bert_puts_one_separator_and_token_types(tiny_model: Path) -> None:
    model = load(tiny_model)
    assert (model.spec.pad_id, model.spec.cls_id, model.spec.sep_id) == (0, 2, 3)
    assert model.spec.sep_count == 1
    assert model.spec.uses_token_types
    assert model.max_positions == 128


def test_roberta_puts_two_separators_and_has_fewer_positions_than_its_config_says(tmp_path: Path) -> None:
    model = load(save_tiny_roberta(tmp_path / "tiny-roberta"))
    assert (model.spec.cls_id, model.spec.pad_id, model.spec.sep_id) == (0, 1, 2)
    assert model.spec.sep_count == 2
    assert not model.spec.uses_token_types
    assert model.max_positions == 66 - 2


def test_bucket_longer_than_the_positions_is_refused(tiny_model: Path) -> None:
    model = load(tiny_model)
    check_lengths(model, [Bucket(length=128, rows=1)])
    with pytest.raises(CompileFailed, match=r"1x129 is longer than tiny-qa can read.*--buckets 16x64,10x96,8x128"):
        check_lengths(model, [Bucket(length=64, rows=1), Bucket(length=129, rows=1)])


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ({"architectures": ["BertForMaskedLM"]}, "a head for none of the tasks"),
        ({"architectures": None}, "no question-answering head"),
        ({"model_type": "oracle"}, "does not recognize this architecture"),
        ({"model_type": "vit"}, "do not load"),
    ],
)
def test_config_of_another_network_is_refused(edited: Edit, config: dict[str, Any], told: str) -> None:
    with pytest.raises(ModelRefused, match=told):
        load(edited(**config))


def test_no_part_of_the_product_trusts_code_beside_a_model() -> None:
    for folder in ("api", "compile", "corelane", "workers"):
        for path in (ROOT / folder).rglob("*.py"):
            calls = path.read_text().split(".from_pretrained(")[1:]
            assert all("trust_remote_code=False" in call[:200] for call in calls), path


def test_head_that_was_never_trained_is_refused(edited: Edit) -> None:
    folder = edited()
    with quiet_transformers():
        AutoModel.from_pretrained(folder).save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"architectures": ["BertForQuestionAnswering"]}))
    with pytest.raises(ModelRefused, match="lacks weights, qa_outputs"):
        load(folder)


def test_tokenizer_of_another_model_is_refused(edited: Edit, tmp_path: Path) -> None:
    folder = edited()
    other = save_tiny_roberta(tmp_path / "other")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((other / name).read_bytes())
    with pytest.raises(ModelRefused, match="another model's"):
        load(folder)


def test_tokenizer_that_adds_no_special_tokens_is_refused(tmp_path: Path) -> None:
    folder = save_tiny_roberta(tmp_path / "tiny-roberta")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["post_processor"] = None
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(ModelRefused, match="adds no <s>: save it with its post-processor"):
        load(folder)


def test_saved_tokenizer_neither_truncates_nor_pads(edited: Edit, tmp_path: Path) -> None:
    folder = edited()
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=16)
    tokenizer.save(str(folder / "tokenizer.json"))
    save_files(load(folder), tmp_path)
    saved = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert saved.truncation is None
    assert saved.padding is None
    assert len(saved.encode("the river the city the tower", add_special_tokens=False).ids) == 6
