"""An artifact that is not what its manifest says, or whose tokenizer takes minutes, is refused before it is run."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corelane.artifacts.manifest import MANIFEST_NAME, TOKENIZER_NAME, Artifact, digest_file, read_artifact
from corelane.engine.runner import Runner, open_backend
from corelane.engine.text import tokenizer
from corelane.errors import ArtifactRefused


@pytest.fixture
def folder(tiny_artifact: Artifact, tmp_path: Path) -> Path:
    folder = tmp_path / "tiny-qa" / tiny_artifact.manifest.version / "cpu"
    shutil.copytree(tiny_artifact.path, folder)
    return folder


def change_manifest(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    manifest = json.loads((folder / MANIFEST_NAME).read_bytes())
    change(manifest)
    (folder / MANIFEST_NAME).write_text(json.dumps(manifest))


def change_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def rename_bucket(manifest: dict[str, Any], name: str) -> None:
    old = manifest["buckets"][0]["file"]
    for bucket in manifest["buckets"]:
        bucket["file"] = name if bucket["file"] == old else bucket["file"]
    manifest["files"][name] = manifest["files"].pop(old)


def open_it(folder: Path) -> Runner:
    return Runner.open(open_backend("cpu"), read_artifact(folder))


def test_changed_byte_in_any_file_is_refused(folder: Path, tiny_artifact: Artifact) -> None:
    for name in tiny_artifact.manifest.files:
        change_byte(folder / name)
        with pytest.raises(ArtifactRefused, match="is damaged"):
            open_it(folder)
        shutil.copy(tiny_artifact.file(name), folder / name)
    open_it(folder).close()


@pytest.mark.parametrize("name", ["../outside.pt", "sub/inside.pt", "/etc/hostname", ".."])
def test_path_in_a_name_is_refused(folder: Path, tiny_artifact: Artifact, name: str) -> None:
    bucket = tiny_artifact.manifest.buckets[0].file
    for target in (folder.parent / "outside.pt", folder / "sub" / "inside.pt"):
        target.parent.mkdir(exist_ok=True)
        shutil.copy(folder / bucket, target)
    change_manifest(folder, lambda manifest: rename_bucket(manifest, name))
    with pytest.raises(ArtifactRefused, match=r"cannot be read|is missing"):
        open_it(folder)


def test_link_to_elsewhere_is_refused_though_its_content_is_right(folder: Path, tiny_artifact: Artifact) -> None:
    for name in tiny_artifact.manifest.files:
        elsewhere = folder.parent / f"{name}.elsewhere"
        (folder / name).rename(elsewhere)
        (folder / name).symlink_to(elsewhere)
        with pytest.raises(ArtifactRefused, match="leads out of its artifact's folder"):
            open_it(folder)
        (folder / name).unlink()
        elsewhere.rename(folder / name)


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"{}", "cannot be loaded"),
        (b"no JSON", "cannot be loaded"),
        (
            {"normalizer": {"type": "Replace", "pattern": {"Regex": r"(\w+)+[^\w\x00]"}, "content": "x"}},
            "cannot be loaded",
        ),
        (
            {"normalizer": {"type": "Replace", "pattern": {"Regex": r"\w*\w*[^\w\x00]"}, "content": "x"}},
            "takes more than",
        ),
    ],
    ids=["empty", "no-json", "pattern-that-breaks-off", "pattern-that-takes-minutes"],
)
def test_tokenizer_is_tried_under_a_time_limit_before_anything_is_loaded(
    folder: Path, content: bytes | dict[str, Any], word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder / TOKENIZER_NAME
    if isinstance(content, dict):
        content = json.dumps(json.loads(path.read_bytes()) | content).encode()
        monkeypatch.setattr(tokenizer, "TRIAL_S", 2.0)
    path.write_bytes(content)
    change_manifest(folder, lambda manifest: manifest["files"].update({TOKENIZER_NAME: digest_file(path)}))
    with pytest.raises(ArtifactRefused, match=word):
        open_it(folder)


def test_tokenizer_of_a_gigabyte_is_refused_unread(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer, "MOST_BYTES", 100)
    with pytest.raises(ArtifactRefused, match="no tokenizer is that large"):
        open_it(folder)
