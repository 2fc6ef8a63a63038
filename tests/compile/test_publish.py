import os
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from compile.publish import ABANDONED_S, BUILDING, building, publish
from corelane.errors import CompileFailed


@contextmanager
def largest_file(limit_bytes: int) -> Iterator[None]:
    """Let the kernel refuse larger files, as with a used-up quota."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def everything_below(root: Path) -> list[Path]:
    return sorted(root.rglob("*"))


def test_others_may_read_what_is_published(tmp_path: Path) -> None:
    with building(tmp_path, 0) as aside:
        publish(aside, tmp_path / "name")
    (tmp_path / "plain").mkdir()
    assert (tmp_path / "name").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_artifact_that_is_there_is_replaced_whole(tmp_path: Path) -> None:
    place = tmp_path / "name"
    for text in ("first", "second"):
        with building(tmp_path, 0) as aside:
            (aside / f"{text}.txt").write_text(text)
            publish(aside, place)
    assert everything_below(tmp_path) == [place, place / "second.txt"]


def test_artifact_stays_if_its_successor_cannot_be_moved(tmp_path: Path) -> None:
    place = tmp_path / "name"
    place.mkdir()
    (place / "file").write_text("old")
    with pytest.raises(FileNotFoundError):
        publish(tmp_path / "never-made", place)
    assert everything_below(tmp_path) == [place, place / "file"]


@pytest.mark.parametrize("failure", [ValueError("a bug"), KeyboardInterrupt(), SystemExit(1)])
def test_failure_leaves_nothing(tmp_path: Path, failure: BaseException) -> None:
    def fail() -> None:
        with building(tmp_path, 0) as aside:
            (aside / "file").write_text("half")
            raise failure

    with pytest.raises(type(failure)):
        fail()
    assert everything_below(tmp_path) == []


def test_folder_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "artifacts").write_text("a file, not a folder")
    with pytest.raises(CompileFailed, match="cannot write the artifact"), building(tmp_path / "artifacts", 1):
        pass


def test_folders_of_killed_builds_are_removed_and_those_of_running_ones_stay(tmp_path: Path) -> None:
    dead, alive = tmp_path / f"{BUILDING}dead", tmp_path / f"{BUILDING}alive"
    dead.mkdir()
    alive.mkdir()
    long_ago = time.time() - ABANDONED_S - 1
    os.utime(dead, (long_ago, long_ago))
    with building(tmp_path, 0):
        assert not dead.exists()
        assert alive.exists()
