import shutil
from pathlib import Path

import pytest

from compile.model.source import SERVING_NAME, digest_source, find_source
from corelane.artifacts.calibration import SHIPPED_NAME
from corelane.artifacts.manifest import FINGERPRINT_CHARS, model_name
from corelane.errors import CompileFailed, ModelRefused
from tests.tools.artifacts import CALIBRATION

NOWHERE = "http://127.0.0.1:9"


@pytest.mark.parametrize("by_name", [True, False])
def test_model_is_a_name_among_those_that_come_with_corelane_or_a_folder(
    monkeypatch: pytest.MonkeyPatch, tiny_model: Path, by_name: bool
) -> None:
    if by_name:
        monkeypatch.setattr("compile.model.source.MODELS", tiny_model.parent)
    source = find_source("tiny-qa" if by_name else str(tiny_model))
    assert (source.folder.resolve(), source.label) == (tiny_model.resolve(), "tiny-qa")
    assert (len(source.digest), source.version) == (64, source.digest[:FINGERPRINT_CHARS])


def test_digest_knows_contents_and_not_where_they_lie(tiny_model: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(tiny_model, tmp_path / "elsewhere"))
    assert digest_source(copy) == digest_source(tiny_model)
    (copy / "README.md").write_text("says nothing about answers")
    assert digest_source(copy) == digest_source(tiny_model)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", SERVING_NAME])
def test_digest_changes_with_every_file_that_decides_an_answer(tiny_model: Path, tmp_path: Path, name: str) -> None:
    copy = Path(shutil.copytree(tiny_model, tmp_path / "elsewhere"))
    with (copy / name).open("ab") as stream:
        stream.write(b" ")
    assert digest_source(copy) != digest_source(tiny_model)


def test_pickled_weights_count_only_without_safetensors(tiny_model: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(tiny_model, tmp_path / "elsewhere"))
    (copy / "pytorch_model.bin").write_bytes(b"old")
    assert digest_source(copy) == digest_source(tiny_model)
    (copy / "model.safetensors").unlink()
    before = digest_source(copy)
    (copy / "pytorch_model.bin").write_bytes(b"new")
    assert digest_source(copy) != before


@pytest.mark.parametrize("model", ["./none/such", "/none/such", "~none", "a/b/c", "../none-such", ""])
def test_impossible_hub_ids_are_refused_without_asking_the_hub(model: str) -> None:
    with pytest.raises(ModelRefused, match="there is no folder"):
        find_source(model, NOWHERE)


def test_threshold_comes_with_the_model(tiny_model: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(tiny_model, tmp_path / "strict-qa"))
    assert find_source(str(copy)).no_answer_threshold == 0
    (copy / SERVING_NAME).write_text('{"no_answer_threshold": -7.35}')
    assert find_source(str(copy)).no_answer_threshold == -7.35


@pytest.mark.parametrize("text", ["", "[]", '{"no_answer_threshold": "low"}', '{"no_answer_threshold": null}'])
def test_threshold_that_makes_no_sense_is_refused(tiny_model: Path, tmp_path: Path, text: str) -> None:
    copy = Path(shutil.copytree(tiny_model, tmp_path / "odd-qa"))
    (copy / SERVING_NAME).write_text(text)
    with pytest.raises(ModelRefused, match="makes no sense"):
        find_source(str(copy))


@pytest.mark.parametrize("fault", ["damaged", "of other weights"])
def test_a_calibration_that_is_not_these_weights_is_refused(tiny_model: Path, tmp_path: Path, fault: str) -> None:
    copy = Path(shutil.copytree(tiny_model, tmp_path / "calibrated-qa"))
    version = find_source(str(copy)).version
    given = CALIBRATION.model_copy(update={"version": version if fault == "damaged" else "f" * 12}).signed()
    text = given.model_dump_json()
    (copy / SHIPPED_NAME).write_text(text.replace(CALIBRATION.file, "other.json") if fault == "damaged" else text)
    with pytest.raises(
        ModelRefused,
        match=r"is damaged.*calibrate the model again|was fitted for version f+: calibrate the model again",
    ):
        find_source(str(copy))
    (copy / SHIPPED_NAME).write_text(CALIBRATION.model_copy(update={"version": version}).signed().model_dump_json())
    assert find_source(str(copy)).version == version


def test_hub_id_is_downloaded_and_digested_like_a_folder(hub: str, hub_cache: Path, tiny_model: Path) -> None:
    source = find_source("some/tiny-qa", hub)
    assert source.label == "some/tiny-qa"
    assert source.digest == digest_source(tiny_model)
    assert hub_cache in source.folder.parents


@pytest.mark.usefixtures("hub_cache")
def test_downloaded_model_is_found_again_without_network(hub: str) -> None:
    there = find_source("some/tiny-qa", hub)
    assert find_source("some/tiny-qa", NOWHERE) == there


@pytest.mark.usefixtures("hub_cache")
def test_model_the_hub_does_not_know_is_refused(hub: str) -> None:
    with pytest.raises(ModelRefused, match="no model on the Hugging Face hub is called some/other"):
        find_source("some/other", hub)


@pytest.mark.usefixtures("hub_cache")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("some/gated", "asks for permission: accept its terms on its page"),
        ("some/tiny-qa@none", "has no revision 'none'"),
        ("some/broken", r"does not respond \(503\)"),
    ],
)
def test_what_the_hub_does_not_give_is_told_in_a_sentence(hub: str, name: str, reason: str) -> None:
    with pytest.raises((ModelRefused, CompileFailed), match=reason) as refusal:
        find_source(name, hub)
    assert "\n" not in refusal.value.detail


@pytest.mark.usefixtures("hub_cache")
def test_a_revision_is_named_behind_an_at_sign(hub: str, tiny_model: Path) -> None:
    told: list[tuple[str, int, int]] = []
    source = find_source("some/tiny-qa@v2", hub, report=lambda *each: told.append(each))
    assert (source.label, source.digest) == ("some/tiny-qa@v2", digest_source(tiny_model))
    assert model_name(source.label) == "tiny-qa"
    assert told[-1][0] == "downloading some/tiny-qa@v2 (MB)"


@pytest.mark.usefixtures("hub_cache")
def test_offline_is_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(CompileFailed, match="HF_HUB_OFFLINE is set, and the hub's cache lacks it"):
        find_source("some/tiny-qa")


@pytest.mark.usefixtures("hub_cache")
def test_without_network_the_error_says_what_to_do() -> None:
    with pytest.raises(CompileFailed, match="copy the model's folder here and give its path"):
        find_source("some/tiny-qa", NOWHERE)
