"""Ports of this machine: held for a part that binds later, or claimed, so that no two services take the same."""

import errno
import fcntl
import os
import socket
import tempfile
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import IO, TypeVar

from corelane.errors import SetupError

#: Ports tried, beginning with the wanted one.
PORTS_TRIED = 100

#: Connections that may wait to be accepted; the API uses the same number.
BACKLOG = 1024

Taken = TypeVar("Taken")


def port_is_free(host: str, port: int) -> bool:
    """Return whether a server could listen there now."""
    with closing(_new_socket(host)) as probe:
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def hold_port(host: str, wanted: int, option: str = "--port", *, is_given: bool = False) -> socket.socket:
    """Return a socket that listens on ``wanted`` or, unless ``is_given``, on the next free port; 0 means any port.

    The process that serves inherits the socket, which stays open while that process is replaced, so no caller is
    refused.
    """
    return _first(host, wanted, option, partial(_listen, host, option), is_given=is_given)


def require_port(host: str, port: int, option: str = "--port") -> None:
    """Raise SetupError unless a server could listen there now."""
    hold_port(host, port, option, is_given=True).close()


class PortClaim:
    """A port for a part that binds it later. Two services that start at once on one machine claim different ones."""

    def __init__(self, host: str, wanted: int, option: str, *, is_given: bool = False) -> None:
        """``is_given`` says that an operator chose the port: no other port is taken at the start."""
        self._host, self._wanted, self._option, self._is_given = host, wanted, option, is_given
        self._lock: IO[str] | None = None
        self.port = 0

    def choose(self) -> int:
        """Return the same port as before if it is free, or else the next free one."""
        if self._lock is None or not port_is_free(self._host, self.port):
            self.release()
            is_only = self._is_given and not self.port
            self.port = _first(self._host, self._wanted, self._option, self._claim, is_given=is_only)
        return self.port

    def release(self) -> None:
        """Release the port."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _claim(self, port: int) -> int | None:
        with closing(_new_socket(self._host)) as probe:
            try:
                probe.bind((self._host, port))
            except OSError:
                return None
            port = int(probe.getsockname()[1])
        # The services of this user on this machine share it.
        lock = (Path(tempfile.gettempdir()) / f"corelane-port-{port}-{os.getuid()}.lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            return None
        self._lock = lock
        return port


def _first(
    host: str, wanted: int, option: str, take: Callable[[int], Taken | None], *, is_given: bool = False
) -> Taken:
    """Return ``take(wanted)`` or, unless ``is_given``, ``take`` of the next port for which it returns a value."""
    _check_host(host)
    ports = range(wanted, min(wanted + (1 if is_given else PORTS_TRIED), 65536)) if wanted else range(1)
    for port in ports:
        if (taken := take(port)) is not None:
            return taken
    if is_given:
        raise SetupError(
            f"port {wanted} of {host} is busy: end what listens there (`ss -ltnp`), or choose another with {option}"
        )
    raise SetupError(f"ports {wanted} to {ports[-1]} of {host} are all busy; choose another with {option}")


def _listen(host: str, option: str, port: int) -> socket.socket | None:
    held = _new_socket(host)
    held.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        held.bind((host, port))
        held.listen(BACKLOG)
    except OSError as error:
        held.close()
        if error.errno == errno.EADDRINUSE:
            return None
        if error.errno == errno.EACCES:
            raise SetupError(f"port {port} may not be used by this user; choose another with {option}") from None
        raise SetupError(f"nothing can listen on port {port} of {host}: {error.strerror}") from None
    return held


def _check_host(host: str) -> None:
    """Raise SetupError unless a server could listen on this address."""
    with closing(_new_socket(host)) as probe:
        try:
            probe.bind((host, 0))
        except socket.gaierror:
            raise SetupError(f"there is no host {host}; give an address of this machine, as 127.0.0.1") from None
        except OSError as error:
            why = f"nothing can listen on {host}: {error.strerror}"
            if error.errno == errno.EADDRNOTAVAIL:
                why = (
                    f"{host} is no address of this machine; 127.0.0.1 serves this machine alone, 0.0.0.0 all others too"
                )
            raise SetupError(why) from None


def _new_socket(host: str) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return made
