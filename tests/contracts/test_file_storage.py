"""The storage of files over each kind of place: a disk, fsspec's memory, a real S3 server."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import fsspec
import pytest

from corelane.errors import NotFound, StorageFailed
from corelane.store.file_storage import Storage, open_storage
from tests.tools.s3 import S3Server, settle

MIB = 1024 * 1024


@pytest.fixture(params=["disk", "memory", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    if request.param == "disk":
        yield open_storage(None, tmp_path)
    elif request.param == "memory":
        folder = f"memory://{uuid4().hex}/files"
        yield open_storage(folder, tmp_path)
        fsspec.filesystem("memory").rm(folder, recursive=True) if fsspec.filesystem("memory").exists(folder) else None
    else:
        yield open_storage(f"{request.getfixturevalue('s3')}/files", tmp_path)


def put(storage: Storage, name: str, *chunks: bytes) -> None:
    writer = storage.create(name)
    for chunk in chunks:
        writer.write(chunk)
    writer.close()


def test_file_is_read_as_it_was_written_whole_or_in_part(storage: Storage) -> None:
    put(storage, "a", b"first ", b"second")
    assert b"".join(storage.read("a")) == b"first second"
    assert [storage.read_at("a", *where) for where in ((0, 5), (6, 100), (12, 5))] == [b"first", b"second", b""]


def test_empty_file_is_a_file(storage: Storage) -> None:
    put(storage, "a")
    assert (list(storage.read("a")), storage.read_at("a", 0, 10), storage.names()) == ([], b"", ["a"])


def test_missing_file_is_not_found_and_deleted_without_complaint(storage: Storage) -> None:
    for read in (lambda: storage.read("a"), lambda: storage.read_at("a", 0, 10)):
        with pytest.raises(NotFound):
            read()
    storage.delete("a")
    assert storage.names() == []


def test_large_file_goes_in_several_parts_and_is_whole(storage: Storage) -> None:
    """S3 takes it as a multipart upload: 8 MiB are one part."""
    chunk = bytes(range(256)) * 4096
    put(storage, "a", *[chunk] * 20)
    assert storage.read_at("a", 17 * MIB - 1, 3) == b"\xff\x00\x01"
    assert sum(map(len, storage.read("a"))) == 20 * MIB


def test_discarded_file_never_was(storage: Storage) -> None:
    for size in (10, 20 * MIB):
        writer = storage.create("a")
        writer.write(b"x" * size)
        writer.discard()
    del writer
    assert storage.names() == []


def test_folders_of_a_storage_are_listed_each_by_itself(storage: Storage) -> None:
    put(storage, "a", b"1")
    put(storage, "items/b", b"2")
    put(storage, "items/c", b"3")
    assert (storage.names(), sorted(storage.names("items")), storage.names("none")) == (["a"], ["b", "c"], [])
    storage.delete("items/b")
    assert storage.names("items") == ["c"]


def test_checked_storage_works_and_is_as_it_was(storage: Storage) -> None:
    storage.check()
    assert storage.names() == []


def test_bucket_of_more_files_than_a_page_is_listed_whole(s3: str, s3_server: S3Server, tmp_path: Path) -> None:
    folder = s3_server.folder / s3.removeprefix("s3://")
    for number in range(1100):
        (folder / f"file_{number:04}").touch()
    settle()
    names = open_storage(s3, tmp_path).names()
    assert (len(names), len(set(names))) == (1100, 1100)


def test_wrong_credentials_are_said_in_one_sentence(s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    storage = open_storage(f"{s3}/wrong", tmp_path)  # a URL of its own: credentials are read once for each
    with pytest.raises(StorageFailed, match=r"refuses access: .* Check the credentials of this process"):
        storage.check()
    with pytest.raises(StorageFailed, match="refuses access"):
        storage.read("a")


def test_missing_bucket_fails_where_it_is_written_to(s3: str, tmp_path: Path) -> None:
    with pytest.raises(StorageFailed, match="does not"):
        open_storage(f"{s3}-2/files", tmp_path).check()


def test_server_that_dies_during_a_write_leaves_nothing(s3: str, s3_server: S3Server, tmp_path: Path) -> None:
    storage = open_storage(s3, tmp_path)
    writer = storage.create("a")
    writer.write(b"x" * 9 * MIB)
    s3_server.kill()
    try:
        with pytest.raises(StorageFailed):
            writer.write(b"x" * 9 * MIB)
        writer.discard()
        with pytest.raises(StorageFailed):
            storage.names()
    finally:
        s3_server.start()
    assert storage.names() == []
    put(storage, "a", b"whole")
    assert b"".join(storage.read("a")) == b"whole"
