"""A data folder of Redis files stays with a server that can read it."""

import subprocess
from pathlib import Path

import pytest

from corelane.cli.redis_server import (
    Server,
    can_read,
    choose_server,
    comment_on,
    find_server,
    find_writer,
    identify,
    note_writer,
    read_head,
    server_argv,
)
from corelane.errors import SetupError
from tests.conftest import free_port
from tests.fakes import save_server_stand_in

DEBIAN, VALKEY_8, VALKEY_9 = Server("redis", (7, 0, 15)), Server("valkey", (8, 1)), Server("valkey", (9, 1, 2))


def written_by(folder: Path, head: bytes) -> Path:
    """Make a folder as a server leaves it that writes no note."""
    (folder / "appendonlydir").mkdir(parents=True)
    (folder / "appendonlydir" / "appendonly.aof.1.base.rdb").write_bytes(head + b"\xfa\x0aredis-bits\xc0\x40")
    return folder


@pytest.fixture(scope="module")
def valkey_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder that the bundled server wrote, killed so that nothing is tidied up."""
    folder = tmp_path_factory.mktemp("valkey")
    server = subprocess.Popen(server_argv(find_server(), folder, free_port()), stdout=subprocess.PIPE)
    while not list(folder.glob("appendonlydir/*.manifest")):
        assert server.poll() is None
    server.kill()
    server.communicate()
    return folder


@pytest.mark.parametrize(
    ("server", "writer", "reads"),
    [
        (DEBIAN, None, True),
        (DEBIAN, Server("redis", (7, 0, 1)), True),
        (DEBIAN, Server("redis", (6, 2, 5)), True),
        (DEBIAN, Server("redis", (7, 2)), False),
        (DEBIAN, VALKEY_8, False),
        (DEBIAN, VALKEY_9, False),
        (Server("redis", (7, 4)), VALKEY_8, True),
        (Server("redis", (8, 2)), VALKEY_9, False),
        (VALKEY_9, DEBIAN, True),
        (VALKEY_9, Server("redis", (7, 4)), False),
        (VALKEY_9, VALKEY_8, True),
        (VALKEY_8, VALKEY_9, False),
        (Server("valkey", (9, 1, 0)), VALKEY_9, True),
    ],
)
def test_server_reads_what_it_or_an_elder_of_its_kind_wrote(server: Server, writer: Server | None, reads: bool) -> None:
    assert can_read(server, writer) is reads


def test_writer_of_a_folder_without_a_note_is_read_from_its_base(valkey_folder: Path, tmp_path: Path) -> None:
    bundled = identify(find_server())
    assert bundled is not None
    assert find_writer(valkey_folder) == bundled.server
    assert find_writer(written_by(tmp_path / "debian", b"REDIS0010\xfa\x09redis-ver\x067.0.15")) == DEBIAN
    assert read_head(b"REDIS0011\xfa\x0avalkey-ver\x038.1") == VALKEY_8
    assert find_writer(tmp_path / "new") is None


def test_note_counts_for_more_than_an_older_base(tmp_path: Path) -> None:
    written_by(tmp_path, b"REDIS0010\xfa\x09redis-ver\x067.0.15")
    note_writer(tmp_path, VALKEY_9)
    assert find_writer(tmp_path) == VALKEY_9


def test_server_that_cannot_read_the_folder_is_refused_with_a_way_out(valkey_folder: Path, tmp_path: Path) -> None:
    debian = save_server_stand_in(tmp_path, "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64")
    before = {file: file.read_bytes() for file in valkey_folder.rglob("*") if file.is_file()}
    with pytest.raises(SetupError, match=r"was written by Valkey 9\..* Redis 7\.0\.15 .* cannot read.*pip install"):
        choose_server(valkey_folder, [debian])
    assert {file: file.read_bytes() for file in valkey_folder.rglob("*") if file.is_file()} == before


def test_folder_stays_with_the_kind_of_server_that_wrote_it(valkey_folder: Path, tmp_path: Path) -> None:
    debian = save_server_stand_in(tmp_path, "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64")
    bundled = find_server()
    theirs = written_by(tmp_path / "debian", b"REDIS0010\xfa\x09redis-ver\x067.0.15")
    assert choose_server(theirs, [bundled, debian]).path == debian
    assert choose_server(theirs, [bundled]).path == bundled
    assert choose_server(valkey_folder, [debian, bundled]).path == bundled
    assert choose_server(tmp_path / "new", [bundled, debian]).path == bundled


def test_advice_that_cuts_the_file_is_not_left_uncommented(tmp_path: Path) -> None:
    line = "make a backup of your AOF file, then use ./redis-check-aof --fix <filename.manifest>"
    assert "do not run that" in (comment_on(line, tmp_path) or "")
    assert comment_on("Ready to accept connections", tmp_path) is None
