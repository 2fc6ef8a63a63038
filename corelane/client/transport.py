"""What both clients ask of their HTTP library, and of the log."""

import logging
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import httpx2

from corelane.client.endpoints import Call
from corelane.client.protocol import Service, Wait
from corelane.client.wire import checked_key, host_of
from corelane.errors import InvalidInput

#: Idle connections are closed long before the service does so (after 75 s), or a proxy: a job must not go into a closed
#: one. In seconds.
KEEPALIVE_S = 2.0

#: Connections one client holds at most.
MAX_CONNECTIONS = 100


#: Pauses shorter than this, in seconds, are not worth a line in the log.
WORTH_TELLING_S = 1.0


def log_wait(wait: Wait) -> None:
    """Tell the log why a call waits: what a client does that was given no ``on_wait``."""
    if wait.seconds + wait.waited_s >= WORTH_TELLING_S:
        logging.getLogger("corelane.client").warning(
            "%s; waited %.0f s, trying again in %.0f s", wait.reason.detail, wait.waited_s, wait.seconds
        )


def http_options(base_url: str, api_key: str | None) -> dict[str, Any]:
    """Arguments for the library's client; raises InvalidInput for an address or key that is none.

    A proxy from the environment is not asked for a service on this machine.
    """
    try:
        is_local = host_of(base_url) in ("localhost", "127.0.0.1", "::1")
        httpx2.URL(base_url)
    except (ValueError, httpx2.InvalidURL) as error:
        raise InvalidInput(f"{base_url!r} is not a service's address: {error}") from None
    return {
        "base_url": base_url,
        "limits": httpx2.Limits(max_connections=MAX_CONNECTIONS, keepalive_expiry=KEEPALIVE_S),
        "trust_env": not is_local,
        "headers": {"Authorization": f"Bearer {checked_key(api_key)}"} if api_key else {},
    }


def timeout_of(call: Call[Any], service: Service) -> httpx2.Timeout:
    """How long a call may take to connect, and each silence of it."""
    return httpx2.Timeout(service.timeout_s, read=service.timeout_s + call.wait_s)


def new_key() -> str:
    """An idempotency key nobody has used before."""
    return uuid.uuid4().hex


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file that takes its place once it is written to its end; nothing is left of it otherwise."""
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        with aside.open("wb") as file:
            yield file
        aside.replace(path)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror}") from error
    finally:
        aside.unlink(missing_ok=True)
