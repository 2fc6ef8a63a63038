"""Ports of this machine: which are free."""

import socket
from contextlib import closing

from corelane.errors import SetupError


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
