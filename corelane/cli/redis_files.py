"""Which server wrote a folder of Redis files, and which server can read it.

Redis and Valkey write files that the other, or an older version, may be unable to read. A note beside the files names
the last writer; in folders older than the note, the head of the append-only file's base does.
"""

import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import orjson

NOTE = "server.json"

Kind = Literal["redis", "valkey"]

#: The newest version of Redis whose files every Valkey reads; Redis changed its format afterwards.
LAST_SHARED_REDIS = (7, 2)

#: The first version of Valkey that writes a format of its own, and the Redis that reads the formats before it.
FIRST_OWN_VALKEY, SHARED_REDIS = (9, 0), (7, 2)

#: The head of a snapshot: magic and format, then the field that names the version.
SNAPSHOT_HEAD = re.compile(rb"(?:REDIS|VALKEY)[0-9]{3,4}\xfa.(redis|valkey)-ver.([0-9]+(?:\.[0-9]+)*)", re.DOTALL)

#: Bytes read of a snapshot; its head is shorter.
HEAD_BYTES = 64

#: A tool that servers advise when they cannot read a file, and that may destroy data.
RISKY_ADVICE = "check-aof"


@dataclass(frozen=True, slots=True)
class Server:
    """A kind of server and its version."""

    kind: Kind
    version: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.kind.capitalize()} {'.'.join(map(str, self.version))}"


def can_read(server: Server, writer: Server | None) -> bool:
    """Return whether a server reads another's files, by their versions; patch releases do not change files."""
    if writer is None:
        return True
    own, wrote = server.version[:2], writer.version[:2]
    if server.kind == writer.kind:
        return own >= wrote
    if server.kind == "valkey":
        return wrote <= LAST_SHARED_REDIS
    return wrote < FIRST_OWN_VALKEY and own >= SHARED_REDIS


def find_writer(folder: Path) -> Server | None:
    """Return the last writer of the folder; None if it is new or names none."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        note = orjson.loads((folder / NOTE).read_bytes())
        if note["name"] in ("redis", "valkey"):
            return Server(note["name"], parse_version(note["version"]))
    bases = sorted((folder / "appendonlydir").glob("*.base.rdb"), key=lambda path: path.stat().st_mtime)
    for file in (*reversed(bases), folder / "appendonly.aof", folder / "dump.rdb"):
        with suppress(OSError), file.open("rb") as opened:
            if writer := read_head(opened.read(HEAD_BYTES)):
                return writer
    return None


def read_head(head: bytes) -> Server | None:
    """Return the writer of a snapshot that begins like this."""
    found = SNAPSHOT_HEAD.match(head)
    if not found:
        return None
    kind: Kind = "valkey" if found[1] == b"valkey" else "redis"
    return Server(kind, parse_version(found[2].decode()))


def note_writer(folder: Path, server: Server) -> None:
    """Note in the folder the server that writes it from now on."""
    note = {"name": server.kind, "version": ".".join(map(str, server.version))}
    beside = folder / f"{NOTE}.new"
    beside.write_bytes(orjson.dumps(note, option=orjson.OPT_APPEND_NEWLINE))
    beside.replace(folder / NOTE)


def parse_version(text: str) -> tuple[int, ...]:
    """Return ``9.1.2`` as numbers; raise ValueError for other text."""
    return tuple(int(number) for number in text.split("."))


def comment_on(line: str, folder: Path) -> str | None:
    """Return a warning for a server's line whose advice may destroy data."""
    if RISKY_ADVICE not in line:
        return None
    return (
        f"do not run that on {folder} itself: it cuts the file at the first place it cannot read, and all accepted "
        "work behind it is lost; copy the folder first, and see Operations, 'Redis cannot read its files'"
    )
