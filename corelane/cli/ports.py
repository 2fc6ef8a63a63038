"""Ports of this machine: found free, held for a part that binds later, claimed among those that start at once."""

import errno
import fcntl
import os
import socket
import tempfile
from contextlib import closing
from pathlib import Path
from typing import IO

from corelane.errors import SetupError

#: Ports tried from the one wanted on.
PORTS_TRIED = 100

#: Connections that may wait to be accepted, as the API has it.
BACKLOG = 1024


def port_is_free(host: str, port: int) -> bool:
    """Whether a server could listen there now."""
    with closing(socket.socket(_family(host))) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_port(host: str, wanted: int, option: str = "--port") -> int:
    """``wanted`` if it is free, else the next one that is; 0 stands for any. It may be taken a moment later."""
    check_host(host)
    if wanted:
        for port in _candidates(wanted):
            if port_is_free(host, port):
                return port
        raise _all_busy(host, wanted, option)
    with closing(socket.socket(_family(host))) as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def hold_port(host: str, wanted: int) -> socket.socket:
    """A socket that listens on ``wanted``, or on the next port that is free; 0 stands for any.

    It is handed to the process that answers, and kept: while that is replaced, callers wait and are not refused.
    """
    check_host(host)
    for port in _candidates(wanted) if wanted else (0,):
        held = socket.socket(_family(host))
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            held.bind((host, port))
            held.listen(BACKLOG)
        except OSError as error:
            held.close()
            if error.errno == errno.EACCES:
                raise SetupError(f"port {port} may not be used by this user; choose another with --port") from None
            if error.errno != errno.EADDRINUSE:
                raise SetupError(f"nothing can listen on port {port} of {host}: {error.strerror}") from None
        else:
            return held
    raise _all_busy(host, wanted, "--port")


class PortClaim:
    """A port for a part that binds it by itself, later. Two that start at once on one machine claim different ones."""

    def __init__(self, host: str, wanted: int, option: str) -> None:
        self._host, self._wanted, self._option = host, wanted, option
        self._lock: IO[str] | None = None
        self.port = 0

    def choose(self) -> int:
        """The port as before if it is free, else the next one that is."""
        if self._lock is not None and port_is_free(self._host, self.port):
            return self.port
        self.release()
        if not self._wanted:
            self.port = free_port(self._host, 0)
            return self.port
        check_host(self._host)
        for port in _candidates(self._wanted):
            if port_is_free(self._host, port) and self._claim(port):
                self.port = port
                return port
        raise _all_busy(self._host, self._wanted, self._option)

    def release(self) -> None:
        """Let others have it."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _claim(self, port: int) -> bool:
        lock = lock_file(f"port-{port}").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            return False
        self._lock = lock
        return True


def lock_file(purpose: str) -> Path:
    """A file by which this user's services on this machine agree."""
    return Path(tempfile.gettempdir()) / f"corelane-{purpose}-{os.getuid()}.lock"


def check_host(host: str) -> None:
    """Raise SetupError unless a server could listen on this address."""
    with closing(socket.socket(_family(host))) as probe:
        try:
            probe.bind((host, 0))
        except socket.gaierror:
            raise SetupError(f"there is no host {host}; give an address of this machine, as 127.0.0.1") from None
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                raise SetupError(
                    f"{host} is no address of this machine; 127.0.0.1 is heard by this machine alone, 0.0.0.0 by all"
                ) from None
            raise SetupError(f"nothing can listen on {host}: {error.strerror}") from None


def _candidates(wanted: int) -> range:
    return range(wanted, min(wanted + PORTS_TRIED, 65536))


def _all_busy(host: str, wanted: int, option: str) -> SetupError:
    return SetupError(
        f"ports {wanted} to {_candidates(wanted)[-1]} of {host} are all busy; choose another with {option}"
    )


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
