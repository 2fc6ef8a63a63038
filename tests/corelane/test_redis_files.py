"""A data folder of Redis files stays with a server that can read it."""

from pathlib import Path

import pytest

from corelane.cli.redis_server import (
    Server,
    ServerBinary,
    can_read,
    choose_server,
    comment_on,
    find_server,
    find_writer,
    identify,
    note_writer,
)
from corelane.errors import SetupError
from tests.tools.fakes import save_server_stand_in

DEBIAN, VALKEY_8, VALKEY_9 = Server("redis", (7, 0, 15)), Server("valkey", (8, 1)), Server("valkey", (9, 1, 2))


def written_by(folder: Path, server: Server) -> Path:
    """Make a folder that a server wrote."""
    folder.mkdir()
    note_writer(folder, server)
    return folder


@pytest.fixture(scope="module")
def bundled() -> ServerBinary:
    found = identify(find_server())
    assert found is not None
    return found


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


def test_server_that_cannot_read_the_folder_is_refused_with_a_way_out(bundled: ServerBinary, tmp_path: Path) -> None:
    debian = save_server_stand_in(tmp_path, "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64")
    folder = written_by(tmp_path / "valkey", bundled.server)
    before = {file: file.read_bytes() for file in folder.iterdir()}
    with pytest.raises(SetupError, match=r"was written by Valkey 9\..* Redis 7\.0\.15 .* cannot read.*pip install"):
        choose_server(folder, [debian])
    assert {file: file.read_bytes() for file in folder.iterdir()} == before


def test_folder_stays_with_the_kind_of_server_that_wrote_it(bundled: ServerBinary, tmp_path: Path) -> None:
    debian = save_server_stand_in(tmp_path, "Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64")
    theirs, ours = written_by(tmp_path / "debian", DEBIAN), written_by(tmp_path / "valkey", bundled.server)
    assert (find_writer(theirs), find_writer(tmp_path / "new")) == (DEBIAN, None)
    assert choose_server(theirs, [bundled.path, debian]).path == debian
    assert choose_server(theirs, [bundled.path]).path == bundled.path
    assert choose_server(ours, [debian, bundled.path]).path == bundled.path
    assert choose_server(tmp_path / "new", [bundled.path, debian]).path == bundled.path


def test_advice_that_cuts_the_file_is_not_left_uncommented(tmp_path: Path) -> None:
    line = "make a backup of your AOF file, then use ./redis-check-aof --fix <filename.manifest>"
    assert "do not run that" in (comment_on(line, tmp_path) or "")
    assert comment_on("Ready to accept connections", tmp_path) is None
