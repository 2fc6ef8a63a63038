"""The files of sentence-transformers, in the forms that versions 2 to 6 saved them, mean what they mean to the library.

Each form is a small model; its vectors or scores are those of the installed library, which reads all forms.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from compile.model.source import find_source
from corelane.artifacts.manifest import Artifact
from corelane.errors import ModelRefused
from tests.tasks.test_feature_extraction import (
    OLD_TYPES,
    TEXTS,
    answer,
    layered,
    official,
    save,
    vectors,
    write_modules,
)
from tests.tasks.test_text_ranking import QUERY, asked, official_scores, ranker
from tests.tasks.test_text_ranking import TEXTS as RANKED
from tests.tasks.tiny import answer as answer_all
from tests.tasks.tiny import compiled, save_tiny

#: A pooling as versions up to 5 saved it.
OLD_POOLING = {
    "word_embedding_dimension": 32,
    "pooling_mode_cls_token": False,
    "pooling_mode_mean_tokens": True,
    "pooling_mode_max_tokens": False,
    "pooling_mode_mean_sqrt_len_tokens": False,
}

THREE_POOLINGS = OLD_POOLING | {"pooling_mode_weightedmean_tokens": True, "pooling_mode_lasttoken": True}

UNPOOLED = OLD_POOLING | {"include_prompt": False}

#: The settings of a model whose version says nothing of prompts.
VERSION = {"__version__": {"sentence_transformers": "2.2.2", "transformers": "4.20.0", "pytorch": "1.12.0"}}


def change(path: Path, **said: Any) -> None:
    """Change a JSON file, or make it; None takes a key out."""
    whole = (json.loads(path.read_text()) if path.is_file() else {}) | said
    path.write_text(json.dumps({key: value for key, value in whole.items() if value is not None}))


def old(folder: Path, pooling: Any = OLD_POOLING, **about: Any) -> Path:
    """Save a model as version 2 did."""
    save(folder, pooling=pooling, **about)
    write_modules(folder, ["Transformer", "Pooling"], OLD_TYPES)
    return folder


def without_settings(folder: Path) -> Path:
    (old(folder) / "config_sentence_transformers.json").unlink()
    return folder


def with_network(name: str, **said: Any) -> Callable[[Path], Path]:
    """Return what saves a model whose network's settings have another name, as older versions called them."""

    def make(folder: Path) -> Path:
        (old(folder, kind="roberta") / "sentence_bert_config.json").unlink()
        change(folder / name, **said)
        return folder

    return make


def with_limits(network: Any, tokenizer: int | None) -> Callable[[Path], Path]:
    """Return what saves a model whose network's settings and tokenizer say how long a row may be."""

    def make(folder: Path) -> Path:
        old(folder, network={"max_seq_length": network})
        change(folder / "tokenizer_config.json", model_max_length=tokenizer)
        return folder

    return make


def saved_again(folder: Path) -> Path:
    """Save a model by today's library."""
    plain = old(folder / "plain", network={"max_seq_length": 40, "do_lower_case": True}, **VERSION)
    official(plain).save_pretrained(str(folder / "again"))
    return folder / "again"


def plain_network(folder: Path) -> Path:
    save_tiny("roberta", "AutoModel", folder)
    change(folder / "tokenizer_config.json", model_max_length=33)
    return folder


def instructor(folder: Path) -> Path:
    """Save a model as INSTRUCTOR has it: T5's encoder, a Dense layer, and prompts that are not pooled."""
    import torch

    save(folder, "t5", pooling=UNPOOLED, prompts={"query": "Represent the question: "})
    write_modules(folder, ["Transformer", "Pooling", "Dense", "Normalize"])
    dense = folder / "2_Dense"
    dense.mkdir()
    change(
        dense / "config.json",
        in_features=32,
        out_features=32,
        bias=False,
        activation_function="torch.nn.modules.linear.Identity",
    )
    torch.manual_seed(3)
    torch.save({"linear.weight": torch.randn(32, 32)}, dense / "pytorch_model.bin")
    return folder


#: How each form is saved, and the longest row that it reads.
FORMS: Mapping[str, tuple[Callable[[Path], Path], int]] = {
    "no settings": (without_settings, 96),
    "a version alone": (lambda folder: old(folder, **VERSION), 96),
    "another similarity": (lambda folder: save(folder, similarity_fn_name="dot", default_prompt_name=None), 96),
    "default prompt": (lambda folder: old(folder, prompts={"a": "read: "}, default_prompt_name="a"), 96),
    "shortened": (lambda folder: save(folder, normalize=True, truncate_dim=8), 96),
    "three poolings": (lambda folder: old(folder, THREE_POOLINGS), 96),
    "longer than the positions": (with_limits(4000, None), 96),
    "the tokenizer's length": (with_limits(None, 50), 50),
    "both lengths": (with_limits(40, 20), 40),
    "XLNet's name": (with_network("sentence_xlnet_config.json", max_seq_length=60, do_lower_case=True), 60),
    "RoBERTa's name": (with_network("sentence_roberta_config.json", max_seq_length=61), 61),
    "today's": (saved_again, 40),
    "a network alone": (plain_network, 33),
    "INSTRUCTOR's": (instructor, 96),
    "two tokens behind the text": (lambda folder: old(folder, UNPOOLED, kind="xlnet", prompts={"a": "read: "}), 96),
}


def fitting(folder: Path, data: Path, longest: int) -> Artifact:
    return compiled(folder, data, buckets=f"2x{longest}")


@pytest.mark.parametrize("form", FORMS)
def test_vectors_of_each_form_are_the_librarys(form: str, tmp_path: Path) -> None:
    make, longest = FORMS[form]
    folder = make(tmp_path / "saved")
    model = official(folder)
    artifact = fitting(folder, tmp_path / "data", longest)
    assert min(model.max_seq_length, 96) == longest
    assert artifact.manifest.facts.get("max_length", 96) in (longest, 4000)
    texts = [text for text in TEXTS if len(model.tokenizer(text)["input_ids"]) < longest - 20]
    for name in (None, *(name for name in model.prompts if model.prompts[name])):
        expected = model.encode(texts, prompt_name=name)
        assert vectors(answer(artifact, texts, prompt_name=name)) == pytest.approx(expected, abs=2e-4), name
    [refused] = answer(artifact, ["tower " * 99])
    assert refused["error"]["code"] == "text_too_long"


def by(output: Any, modality: str = "text") -> dict[str, Any]:
    return {"modality_config": {modality: {"method": "forward", "method_output_name": output}}}


#: The files of a network's settings, of a model's, and of a tokenizer's.
NETWORK, SETTINGS, TOKENIZER = "sentence_bert_config.json", "config_sentence_transformers.json", "tokenizer_config.json"


@pytest.mark.parametrize(
    ("name", "said", "reason"),
    [
        (NETWORK, {"tokenizer_args": {"do_lower_case": True}}, "sets 'do_lower_case'"),
        (NETWORK, by(["hidden_states", 1]), "hidden_states"),
        (NETWORK, by("last_hidden_state", "message"), "it reads texts alone"),
        (SETTINGS, {"model_type": "SparseEncoder"}, "is a SparseEncoder"),
        (SETTINGS, {"truncate_dim": -2}, "`truncate_dim` of -2"),
        (SETTINGS, {"truncate_dim": "8"}, "`truncate_dim` of 8"),
        (TOKENIZER, {"split_special_tokens": True}, "`split_special_tokens`"),
    ],
    ids=str,
)
def test_settings_that_would_change_vectors_are_refused(name: str, said: Any, reason: str, tmp_path: Path) -> None:
    folder = save(tmp_path / "saved", network={"module_output_name": "token_embeddings"})
    change(folder / name, **said)
    with pytest.raises(ModelRefused, match=reason):
        compiled(folder, tmp_path / "data")


IDENTITY = "torch.nn.modules.linear.Identity"

#: What version 6 says of a cross-encoder, and of its network.
TODAYS, SCORES = (
    {"model_type": "CrossEncoder", "activation_fn": IDENTITY},
    {"transformer_task": "sequence-classification"},
)

#: What the settings of a cross-encoder say, by file, and whether it has ``modules.json``: older ones have not.
RANKERS: Mapping[str, tuple[bool, dict[str, dict[str, Any]]]] = {
    "3": (False, {"config.json": {"sbert_ce_default_activation_function": IDENTITY}}),
    "4": (False, {"config.json": {"sentence_transformers": {"activation_fn": IDENTITY, "version": "4.1.0"}}}),
    "4 before 3": (
        False,
        {
            "config.json": {
                "sentence_transformers": {"activation_fn": "torch.nn.Sigmoid"},
                "sbert_ce_default_activation_function": IDENTITY,
            }
        },
    ),
    "6": (True, {"config_sentence_transformers.json": TODAYS, "sentence_bert_config.json": SCORES}),
    "6 without modules": (False, {"config_sentence_transformers.json": TODAYS}),
    "6 of another model": (True, {"config_sentence_transformers.json": {"activation_fn": IDENTITY}}),
    "6 with its length": (
        True,
        {
            "config_sentence_transformers.json": {"model_type": "CrossEncoder"},
            "sentence_bert_config.json": SCORES | {"max_seq_length": 40},
        },
    ),
    "the tokenizer's length": (False, {"tokenizer_config.json": {"model_max_length": 40}}),
}


@pytest.mark.parametrize("form", RANKERS)
def test_scores_of_each_form_are_the_librarys(form: str, tmp_path: Path) -> None:
    has_modules, files = RANKERS[form]
    folder = ranker(tmp_path, larger=8.0)
    if has_modules:
        write_modules(folder, ["Transformer"])
    for name, said in files.items():
        change(folder / name, **said)
    longest = 40 if "length" in form else 96
    artifact = fitting(folder, tmp_path / "data", longest)
    assert artifact.manifest.facts.get("max_length", 96) == longest
    texts = [text for text in RANKED if len(text) < 20]
    [result] = answer_all(artifact, [asked(QUERY, texts)])
    expected = official_scores(folder, QUERY, texts)
    assert {each["index"]: each["score"] for each in result["ranking"]} == pytest.approx(
        dict(enumerate(expected)), abs=2e-4
    )


def test_version_changes_with_every_file_that_changes_a_result(tmp_path: Path) -> None:
    folder = layered(tmp_path)
    for name in ("special_tokens_map.json", "added_tokens.json", "vocab.txt", "vocab.json", "merges.txt", "x.model"):
        (folder / name).write_text("{}")
    for name in ("sentence_roberta_config.json", "sentence_xlnet_config.json", "3_Dense/pytorch_model.bin"):
        (folder / name).write_text("{}")
    (folder / "README.md").unlink()
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    assert {"modules.json", "1_Pooling/config.json", "3_Dense/model.safetensors"} < set(names)
    for task in ("feature-extraction", "text-ranking"):
        version = find_source(str(folder), task=task).version
        for name in names:
            before = (folder / name).read_bytes()
            (folder / name).write_bytes(before + b" ")
            assert find_source(str(folder), task=task).version != version, name
            (folder / name).write_bytes(before)
        assert find_source(str(folder), task=task).version == version
