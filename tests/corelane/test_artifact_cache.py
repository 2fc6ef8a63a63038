"""Compiled artifacts that a user's later data folders take over."""

import json
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from compile import once as module
from compile.once import compile_once
from corelane.artifacts.cache import ArtifactCache, cpu_name, key_of
from corelane.artifacts.calibration import CALIBRATION_NAME
from corelane.artifacts.manifest import MANIFEST_NAME, Artifact, check_files, read_artifact
from corelane.settings import Settings
from corelane.settings.fields import user_cache

KEY = key_of({"source": "1"})


@pytest.fixture
def kept(tmp_path: Path) -> ArtifactCache:
    return ArtifactCache(tmp_path / "cache")


def put(kept: ArtifactCache, artifact: Artifact, key: str = KEY) -> None:
    with kept.turn(key):
        kept.keep(key, artifact)


def fetch(kept: ArtifactCache, artifact: Artifact, key: str = KEY) -> Artifact | None:
    return kept.fetch(key, artifact.manifest.version_id, "cpu")


def test_artifact_comes_back_whole_without_its_calibration(
    kept: ArtifactCache, tiny_artifact: Artifact, tmp_path: Path
) -> None:
    copied = tmp_path / "copied"
    shutil.copytree(tiny_artifact.path, copied)
    (copied / CALIBRATION_NAME).write_text("{}")
    put(kept, read_artifact(copied))
    found = fetch(kept, tiny_artifact)
    assert found is not None
    assert found.digest == tiny_artifact.digest
    check_files(found)
    assert not (found.path / CALIBRATION_NAME).exists()
    assert fetch(kept, tiny_artifact, key_of({"source": "2"})) is None
    assert kept.fetch(KEY, "another@0123456789ab", "cpu") is None


HARMS: dict[str, Callable[[Path], object]] = {
    "damaged": lambda entry: next(entry.glob("*.pt")).write_bytes(b"torn"),
    "halved": lambda entry: next(entry.glob("*.pt")).unlink(),
    "without manifest": lambda entry: (entry / MANIFEST_NAME).unlink(),
    "broken manifest": lambda entry: (entry / MANIFEST_NAME).write_text(json.dumps({"name": 1})),
}


@pytest.mark.parametrize("harm", HARMS.values(), ids=HARMS.keys())
def test_broken_entry_counts_as_absent_and_goes(
    kept: ArtifactCache, tiny_artifact: Artifact, tmp_path: Path, harm: Callable[[Path], object]
) -> None:
    put(kept, tiny_artifact)
    harm(tmp_path / "cache" / KEY)
    assert fetch(kept, tiny_artifact) is None
    assert not (tmp_path / "cache" / KEY).exists()
    put(kept, tiny_artifact)
    assert fetch(kept, tiny_artifact) is not None


@pytest.mark.parametrize("place", ["cache", f"cache/{KEY}"])
def test_folder_that_others_may_write_to_is_not_trusted(
    kept: ArtifactCache, tiny_artifact: Artifact, tmp_path: Path, place: str
) -> None:
    put(kept, tiny_artifact)
    (tmp_path / place).chmod(0o777)
    assert fetch(kept, tiny_artifact) is None


def test_link_is_not_followed(kept: ArtifactCache, tiny_artifact: Artifact, tmp_path: Path) -> None:
    put(kept, tiny_artifact)
    entry = tmp_path / "cache" / KEY
    entry.rename(tmp_path / "elsewhere")
    entry.symlink_to(tmp_path / "elsewhere")
    assert fetch(kept, tiny_artifact) is None


def test_folder_that_cannot_be_made_keeps_nothing_and_says_nothing(tiny_artifact: Artifact, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    kept = ArtifactCache(tmp_path / "file" / "cache")
    put(kept, tiny_artifact)
    assert fetch(kept, tiny_artifact) is None


def test_entries_used_longest_ago_go(tiny_artifact: Artifact, tmp_path: Path) -> None:
    weight = sum(path.stat().st_size for path in tiny_artifact.path.iterdir())
    kept = ArtifactCache(tmp_path / "cache", most_bytes=int(2.5 * weight))
    keys = [key_of({"number": number}) for number in range(4)]
    for key in keys:
        put(kept, tiny_artifact, key)
    left = {path.name for path in (tmp_path / "cache").iterdir() if path.is_dir()}
    assert left == set(keys[2:])


def test_cache_folder_is_the_users() -> None:
    assert user_cache({"XDG_CACHE_HOME": "/somewhere"}) == Path("/somewhere/corelane/artifacts")
    for environment in ({}, {"XDG_CACHE_HOME": "relative"}):
        assert user_cache(environment) == Path.home() / ".cache" / "corelane" / "artifacts"


def test_name_of_the_cpu_is_read(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("processor\t: 0\nmodel name\t: AMD EPYC 9V74\nprocessor\t: 1\n")
    assert cpu_name(tmp_path / "cpuinfo") == "AMD EPYC 9V74"
    assert cpu_name(tmp_path / "absent") == ""


class Builder:
    """Compiles by copying an artifact that is there, and counts how often."""

    def __init__(self, artifact: Artifact, tmp_path: Path) -> None:
        self.artifact = artifact
        self.tmp_path = tmp_path
        self.built = 0
        self._lock = threading.Lock()

    def compile(self, model: Path, data: str, **options: str) -> Artifact:
        manifest = self.artifact.manifest
        settings = Settings(data_dir=self.tmp_path / data, artifact_cache=str(self.tmp_path / "cache"))
        settings.artifact_root.mkdir(parents=True)

        def build() -> Artifact:
            with self._lock:
                self.built += 1
            place = settings.artifact_root / manifest.name / manifest.version / manifest.target
            shutil.copytree(self.artifact.path, place)
            return read_artifact(place)

        return compile_once(str(model), manifest.name, settings, options, build)


def test_concurrent_first_starts_compile_once(tiny_artifact: Artifact, tiny_model: Path, tmp_path: Path) -> None:
    builder = Builder(tiny_artifact, tmp_path)
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(lambda number: builder.compile(tiny_model, f"data{number}"), range(4)))
    assert builder.built == 1
    assert {artifact.digest for artifact in made} == {tiny_artifact.digest}
    for artifact in made:
        check_files(artifact)


def test_other_options_and_another_kind_of_cpu_are_compiled_again(
    tiny_artifact: Artifact, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = Builder(tiny_artifact, tmp_path)
    builder.compile(tiny_model, "first", dtype="auto")
    builder.compile(tiny_model, "second", dtype="fp32")
    assert builder.built == 2
    monkeypatch.setattr(module, "instruction_sets", lambda: ("another",))
    builder.compile(tiny_model, "third", dtype="auto")
    assert builder.built == 3
    builder.compile(tiny_model, "fourth", dtype="auto")
    assert builder.built == 3
