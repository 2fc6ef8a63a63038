"""Ports of this machine: the one that was asked for, or a sentence that says it is taken. Port 0 means any free one."""

import errno
import socket
from contextlib import closing

from corelane.errors import SetupError

#: Connections that may wait to be accepted; the API uses the same number.
BACKLOG = 1024


def port_is_free(host: str, port: int) -> bool:
    """Return whether a server could listen there now."""
    with closing(_new_socket(host)) as probe:
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def hold_port(host: str, port: int, option: str = "--port") -> socket.socket:
    """Return a socket that listens there; raise SetupError, which names ``option``, if none can.

    The process that serves inherits the socket, which stays open while that process is replaced, so no caller is
    refused.
    """
    held = _new_socket(host)
    held.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        held.bind((host, port))
        held.listen(BACKLOG)
    except OSError as error:
        held.close()
        if error.errno == errno.EADDRINUSE:
            advice = f"end what listens there (`ss -ltnp`), or choose another with {option}"
            raise SetupError(f"port {port} of {host} is taken: {advice}") from None
        raise SetupError(f"nothing can listen on port {port} of {host}: {error.strerror}") from None
    return held


def require_port(host: str, port: int, option: str = "--port") -> int:
    """Return the port, or a free one for 0; raise SetupError unless a server could listen there now."""
    with closing(hold_port(host, port, option)) as held:
        return int(held.getsockname()[1])


def _new_socket(host: str) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return made
