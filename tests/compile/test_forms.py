"""Weights, tokenizers and labels in the forms that people have: each loads as the same model, or is refused by name."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForQuestionAnswering, AutoTokenizer

from compile.build import build
from compile.model.loading import SourceModel, load_model, quiet_transformers
from compile.model.source import digest_source, find_source
from corelane.errors import ModelRefused
from corelane.settings import Settings
from tests.compile.damage import add_modules, write
from tests.tasks.tiny import save_task

IDS = torch.tensor([[2, 5, 6, 7, 3]])

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 133466304\n"

Change = Callable[[Path], object]


def load(folder: Path, task: str | None = None) -> SourceModel:
    with quiet_transformers():
        return load_model(find_source(str(folder), task=task))


@pytest.fixture
def folder(tiny_model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_model, tmp_path / "formed"))


def edit(path: Path, **values: Any) -> None:
    """Set values of a JSON object; None removes a key."""
    said = json.loads(path.read_text()) | values
    path.write_text(json.dumps({key: value for key, value in said.items() if value is not None}))


def rename(folder: Path, new_name: Callable[[str], str]) -> None:
    tensors = load_file(folder / "model.safetensors")
    save_file(
        {new_name(name): value for name, value in tensors.items()}, folder / "model.safetensors", {"format": "pt"}
    )


def pickle(folder: Path) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")


def only_pickle(folder: Path) -> None:
    pickle(folder)
    (folder / "model.safetensors").unlink()


def in_parts(folder: Path, suffix: str = "safetensors") -> None:
    """Cut the weights into two files and an index."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    stem = "model" if suffix == "safetensors" else "pytorch_model"
    names = [f"{stem}-0000{number}-of-00002.{suffix}" for number in (1, 2)]
    halves = [dict(list(tensors.items())[number::2]) for number in (0, 1)]
    for name, half in zip(names, halves, strict=True):
        save_file(half, folder / name, {"format": "pt"}) if suffix == "safetensors" else torch.save(half, folder / name)
    where = {key: name for name, half in zip(names, halves, strict=True) for key in half}
    (folder / f"{stem}.{suffix}.index.json").write_text(json.dumps({"metadata": {}, "weight_map": where}))


def cast(dtype: torch.dtype) -> Change:
    def change(folder: Path) -> None:
        tensors = load_file(folder / "model.safetensors")
        save_file({name: value.to(dtype) for name, value in tensors.items()}, folder / "model.safetensors")

    return change


def beside_a_wrong_pickle(folder: Path) -> None:
    torch.save({}, folder / "pytorch_model.bin")


def beside_other_safetensors(folder: Path) -> None:
    only_pickle(folder)
    save_file({"other": torch.zeros(2)}, folder / "model_other.safetensors")


def older_names(folder: Path) -> None:
    rename(
        folder,
        lambda name: name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"),
    )


@pytest.mark.parametrize(
    "change",
    [
        in_parts,
        lambda folder: in_parts(folder, "bin"),
        only_pickle,
        cast(torch.float64),
        cast(torch.bfloat16),
        beside_a_wrong_pickle,
        beside_other_safetensors,
        older_names,
        lambda folder: (folder / "chat_template.jinja").write_text("{{ messages }}"),
        lambda folder: (folder / "adapter_model.safetensors").write_bytes(b""),
    ],
)
def test_weights_in_many_forms_are_the_same_model(change: Change, folder: Path) -> None:
    expected = AutoModelForQuestionAnswering.from_pretrained(folder, trust_remote_code=False).eval()
    change(folder)
    network = load(folder).network
    assert {parameter.dtype for parameter in network.parameters()} == {torch.float32}
    with torch.inference_mode():
        assert torch.allclose(network(IDS).start_logits, expected(IDS).start_logits, atol=2e-2)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "tokenizer.9.json", "spm.model"])
def test_the_files_that_count_are_in_the_version(name: str, folder: Path) -> None:
    beside_other_safetensors(folder)
    before = digest_source(folder)
    with (folder / name).open("ab") as stream:
        stream.write(b" ")
    assert digest_source(folder) != before


def without(*names: str) -> Change:
    def change(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return change


def instead(name: str, content: bytes = b"") -> Change:
    """Put another file in place of the weights."""

    def change(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)

    return change


def written(name: str, content: bytes) -> Change:
    return lambda folder: (folder / name).write_bytes(content)


def cut(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def lacking_a_part(folder: Path) -> None:
    in_parts(folder)
    (folder / "model-00002-of-00002.safetensors").unlink()


def config(**values: Any) -> Change:
    return lambda folder: edit(folder / "config.json", **values)


REFUSED: dict[str, tuple[Change, str]] = {
    "pointer": (written("model.safetensors", POINTER), r"model\.safetensors of formed is a pointer of Git LFS: run"),
    "pointed tokenizer": (written("tokenizer.json", POINTER), "is a pointer of Git LFS"),
    "cut": (cut, "weights of formed do not load: .*incomplete"),
    "empty": (written("model.safetensors", b""), r"model\.safetensors of formed is missing or empty: fetch it"),
    "empty pickle": (instead("pytorch_model.bin"), "is missing or empty"),
    "text as pickle": (instead("pytorch_model.bin", b"<html>"), "weights of formed do not load"),
    "gguf": (instead("model-q4.gguf"), "has weights for GGUF alone, .* take model.safetensors or pytorch_model.bin"),
    "onnx": (instead("onnx/model.onnx"), "has weights for ONNX alone"),
    "tensorflow": (instead("tf_model.h5"), "has weights for TensorFlow alone"),
    "adapter": (instead("adapter_config.json", b"{}"), "is an adapter|has an adapter .* merge it into its model"),
    "adapter alone": (
        lambda folder: (without("config.json")(folder), instead("adapter_config.json", b"{}")(folder)),
        "has an adapter",
    ),
    "slow tokenizer": (lambda folder: slow(folder), "has no fast tokenizer"),
    "weights named": (config(transformers_weights="other.safetensors"), "call them model.safetensors"),
    "no weights": (without("model.safetensors"), "holds no weights"),
    "part lacks": (lacking_a_part, r"model-00002-of-00002\.safetensors of formed is missing or empty"),
    "index lacks a map": (instead("model.safetensors.index.json", b"{}"), "weight_map"),
    "parallel": (lambda folder: rename(folder, lambda name: f"module.{name}"), "lacks weights"),
    "other size": (config(hidden_size=48), "weights, and its config.json says"),
    "no config": (without("config.json"), r"holds no config\.json"),
    "no tokenizer": (without("tokenizer.json"), "holds no tokenizer"),
    "empty tokenizer": (written("tokenizer.json", b"{}"), "tokenizer of formed does not load"),
    "another's tokenizer": (
        lambda folder: named("RobertaTokenizer")(folder),
        "is another model's|does not load|cannot",
    ),
    "list as config": (written("config.json", b"[]"), r"config\.json of formed makes no sense: it is no object"),
    "torn config": (written("config.json", b"{"), r"config\.json of formed cannot be read"),
    "empty config": (written("config.json", b"{}"), r"config\.json"),
    "binary config": (written("config.json", b"\xff\xfe\x00"), r"config\.json of formed cannot be read"),
    "deep config": (written("config.json", b"[" * 100_000), r"config\.json of formed cannot be read"),
    **{
        method: (config(quantization_config={"quant_method": method, "bits": 4}), rf"are quantised \({method}\)")
        for method in ("gptq", "awq", "bitsandbytes", "fp8")
    },
}


@pytest.mark.parametrize("form", REFUSED)
def test_what_cannot_be_read_is_refused_in_one_line(form: str, folder: Path) -> None:
    change, told = REFUSED[form]
    change(folder)
    with pytest.raises(ModelRefused, match=told) as refusal:
        load(folder)
    assert "\n" not in refusal.value.detail


def without_config_files(folder: Path) -> None:
    without("tokenizer_config.json")(folder)
    (folder / "special_tokens_map.json").unlink(missing_ok=True)


def named(name: str) -> Change:
    return lambda folder: edit(folder / "tokenizer_config.json", tokenizer_class=name)


def vocabulary_alone(folder: Path) -> None:
    vocabulary = AutoTokenizer.from_pretrained(folder, trust_remote_code=False).get_vocab()
    (folder / "vocab.txt").write_text("\n".join(sorted(vocabulary, key=lambda token: vocabulary[token])))
    for path in folder.glob("tokenizer*.json"):
        path.unlink()


def slow(folder: Path) -> None:
    vocabulary_alone(folder)
    (folder / "vocab.txt").write_text("tower 1\n")
    (folder / "bpe.codes").write_text("a b 1\n")
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertweetTokenizer"}')


def added(folder: Path) -> None:
    tokens = AutoTokenizer.from_pretrained(folder, trust_remote_code=False).get_vocab()
    vocabulary_alone(folder)
    (folder / "added_tokens.json").write_text(json.dumps({"tower": tokens["tower"]}))


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: None,
        without_config_files,
        named("TokenizersBackend"),
        named("PreTrainedTokenizerFast"),
        named("MyOwnTokenizer"),
        lambda folder: edit(folder / "tokenizer_config.json", model_max_length=10**30),
        lambda folder: edit(folder / "tokenizer_config.json", do_lower_case=False),
        lambda folder: edit(folder / "tokenizer_config.json", strip_accents=True),
        vocabulary_alone,
        added,
    ],
)
def test_tokenizers_in_many_forms_read_as_those_of_transformers(change: Change, tmp_path: Path) -> None:
    folder = save_task("text-classification", tmp_path / "formed")
    change(folder)
    official = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    tokenizer = load(folder).tokenizer
    for text in ("The Tower was BUILT in 1889.", "naïve Zürich", "[MASK] tower", "東京", ""):
        assert tokenizer.encode(text).ids == official(text)["input_ids"]


@pytest.mark.parametrize("task", ["text-classification", "token-classification"])
@pytest.mark.parametrize(
    ("labels", "told"),
    [
        ({"0": "odd", "1": "odd"}, ["odd", "odd"]),
        ({"0": "奇数", "1": "чётное «»\n"}, ["奇数", "чётное «»\n"]),
        ({"1": "even", "0": "odd"}, ["odd", "even"]),
        ({"0": "", "1": "even"}, ["", "even"]),
        (None, ["LABEL_0", "LABEL_1"]),
        ({"0": "odd", "2": "even"}, "no name for 1"),
        ({"1": "odd", "2": "even"}, "no name for 0"),
        ({"0": 0, "1": 1.5}, ["0", "1.5"]),
        ({"0": None, "1": "b"}, "no name for 0"),
        ({"a": "odd", "b": "even"}, "cannot be used"),
        ({"0": "a", "1": "b", "2": "c"}, "config.json says 3"),
        (["odd", "even"], "cannot be used"),
        ("odd", "cannot be used"),
    ],
)
def test_labels_of_every_shape_are_those_of_the_config_or_refused(
    task: str, labels: Any, told: str | list[str], tmp_path: Path
) -> None:
    folder = save_task(task, tmp_path / "labelled")
    if task == "token-classification":
        shrink_head(folder)
    edit(folder / "config.json", id2label=labels, label2id=None)
    if isinstance(told, list):
        assert load(folder, task).facts["labels"] == told
        return
    with pytest.raises(ModelRefused, match=told) as refusal:
        load(folder, task)
    assert "\n" not in refusal.value.detail


@pytest.mark.parametrize(
    ("name", "values", "told"),
    [
        ("sentence_bert_config.json", {"max_seq_length": 0.5}, "reads at most 0 tokens, .* rows have 16"),
        ("sentence_bert_config.json", {"max_seq_length": 7}, "reads at most 7 tokens"),
        ("2_Dense/config.json", {"in_features": []}, "cannot be used"),
        ("1_Pooling/config.json", {"pooling_mode": 3}, "cannot be used"),
        ("modules.json", [3], "makes no sense"),
        ("modules.json", {}, "makes no sense: it is no list"),
    ],
)
def test_settings_of_sentence_transformers_that_make_no_sense_are_refused(
    name: str, values: Any, told: str, tmp_path: Path
) -> None:
    folder = save_task("feature-extraction", tmp_path / "embedding")
    add_modules(folder)
    said = json.loads((folder / name).read_text())
    write(folder, {name: said | values if values and isinstance(values, dict) else values})
    with pytest.raises(ModelRefused, match=told):
        load(folder)


@pytest.mark.parametrize("name", ["num_hidden_layers", "vocab_size", "hidden_size", "max_position_embeddings"])
@pytest.mark.parametrize("value", [10**8, 10**400])
def test_numbers_beyond_the_weights_are_refused_before_a_network_is_made(name: str, value: int, folder: Path) -> None:
    edit(folder / "config.json", **{name: value})
    with pytest.raises(ModelRefused, match=f"does not fit its weights: '{name}' is beyond"):
        load(folder)


def test_a_network_that_fails_on_some_rows_is_refused(tmp_path: Path) -> None:
    folder = save_task("text-classification", tmp_path / "chunked")
    edit(folder / "config.json", chunk_size_feed_forward=2)
    with pytest.raises(ModelRefused, match=r"chunked does not run on rows .* multiple of the chunk size"):
        build(str(folder), settings=Settings(data_dir=tmp_path / "data"), buckets="1x32", dtype="fp32")


def shrink_head(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    for name in ("classifier.weight", "classifier.bias"):
        tensors[name] = tensors[name][:2].clone()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize(
    "name",
    ["модель 模型 'x' \"y\"", "-dash [a]*? $HOME a%20b", "x" * 200, ".hidden"],
)
def test_a_folder_of_any_name_compiles(name: str, tiny_model: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_model, tmp_path / name))
    artifact = build(str(folder), settings=Settings(data_dir=tmp_path / "data"), buckets="1x16", dtype="fp32")
    assert artifact.manifest.source == name


def test_a_link_and_a_folder_that_may_not_be_written_load(tiny_model: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny_model, tmp_path / "still"))
    folder.chmod(0o555)
    link = tmp_path / "link"
    link.symlink_to(folder)
    assert load(link).source.digest == find_source(str(tiny_model)).digest
    folder.chmod(0o755)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read_is_refused(folder: Path) -> None:
    (folder / "config.json").chmod(0)
    with pytest.raises(ModelRefused, match="Permission denied"):
        load(folder)


def test_a_file_in_place_of_a_folder_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    with pytest.raises(ModelRefused, match="is a file: give the folder"):
        load(Path("model.safetensors"))
