import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModel, AutoModelForQuestionAnswering

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
        (
            {"intermediate_size": 48},
            "has bert.encoder.* weights, and its config.json says 48",
        ),
    ],
)
def test_config_of_another_network_is_refused(edited: Edit, config: dict[str, Any], told: str) -> None:
    with pytest.raises(ModelRefused, match=told):
        load(edited(**config))


@pytest.mark.parametrize("file", ["config.json", "tokenizer_config.json"])
def test_code_beside_a_model_is_neither_run_nor_asked_about(
    file: str, edited: Edit, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = edited()
    (folder / "mine.py").write_text("raise SystemExit('ran')")
    names = {"AutoConfig": "mine.A", "AutoTokenizer": [None, "mine.B"], "AutoModelForQuestionAnswering": "mine.C"}
    stored = json.loads((folder / file).read_text()) | {"auto_map": names}
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("asked on standard input"))
    (folder / file).write_text(json.dumps(stored))
    load(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"auto_map": names, "model_type": "mine"}))
    with pytest.raises(ModelRefused, match=r"needs the code beside it .* which Corelane never runs: use a model"):
        load(folder)


def test_no_part_of_the_product_trusts_code_beside_a_model() -> None:
    for folder in ("api", "compile", "corelane", "workers"):
        for path in (ROOT / folder).rglob("*.py"):
            calls = path.read_text().split(".from_pretrained(")[1:]
            assert all("trust_remote_code=False" in call[:200] for call in calls), path


@pytest.mark.parametrize("text", ["", "{", "[]", "{}"])
def test_config_that_makes_no_sense_is_refused(edited: Edit, text: str) -> None:
    folder = edited()
    (folder / "config.json").write_text(text)
    with pytest.raises(ModelRefused, match=r"config\.json"):
        load(folder)


def test_head_that_was_never_trained_is_refused(edited: Edit) -> None:
    folder = edited()
    with quiet_transformers():
        AutoModel.from_pretrained(folder).save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"architectures": ["BertForQuestionAnswering"]}))
    with pytest.raises(ModelRefused, match="lacks weights, qa_outputs"):
        load(folder)


@pytest.mark.parametrize(
    ("file", "content", "told"),
    [
        ("model.safetensors", b"not weights", "weights of edited-qa do not load"),
        ("model.safetensors", None, "holds no weights: neither model.safetensors nor pytorch_model.bin"),
        ("tokenizer.json", b"{}", "tokenizer of edited-qa does not load"),
        ("tokenizer.json", None, "holds no tokenizer"),
    ],
)
def test_file_that_is_damaged_or_missing_is_refused(edited: Edit, file: str, content: bytes | None, told: str) -> None:
    folder = edited()
    if content is None:
        (folder / file).unlink()
    else:
        (folder / file).write_bytes(content)
    with pytest.raises(ModelRefused, match=told):
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


def test_half_precision_weights_are_loaded_in_fp32(edited: Edit) -> None:
    folder = edited()
    with quiet_transformers():
        AutoModelForQuestionAnswering.from_pretrained(folder).half().save_pretrained(folder)
    assert {parameter.dtype for parameter in load(folder).network.parameters()} == {torch.float32}


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
