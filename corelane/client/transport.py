"""The base of both clients: their settings, and the arguments for their HTTP library."""

import logging
from collections.abc import Callable
from typing import Any, ClassVar, Generic, TypeVar

import httpx2

from corelane.client.endpoints import Call
from corelane.client.patience import PATIENCE_S, Wait
from corelane.client.protocol import ServiceProtocol
from corelane.client.wire import checked_key, host_of
from corelane.errors import InvalidInput

#: Time after which an idle connection is closed, in seconds: long before the service (75 s) or a proxy closes it. So no
#: job is sent into a closed connection.
KEEPALIVE_S = 2.0

#: Connections one client holds at most.
MAX_CONNECTIONS = 100

Http = TypeVar("Http", httpx2.Client, httpx2.AsyncClient)

#: Shortest pause that is logged, in seconds.
LOGGED_S = 1.0


def log_wait(wait: Wait) -> None:
    """Log why a call waits; the default of a client's ``on_wait``."""
    if wait.seconds + wait.waited_s >= LOGGED_S:
        logging.getLogger("corelane.client").warning(
            "%s; waited %.0f s, trying again in %.0f s", wait.reason.detail, wait.waited_s, wait.seconds
        )


def http_options(base_url: str, api_key: str | None) -> dict[str, Any]:
    """Return arguments for the library's client; raise InvalidInput for a malformed address or key.

    A service on this machine is reached directly, even if the environment names a proxy.
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


class BaseClient(Generic[Http]):
    """A client's settings, and its connections to one service."""

    _make_http: ClassVar[Callable[..., Any]]

    def __init__(
        self,
        base_url: str = "http://127.0.0.1:8000",
        api_key: str | None = None,
        *,
        timeout_s: float = 30.0,
        patience_s: float = PATIENCE_S,
        on_wait: Callable[[Wait], None] = log_wait,
    ) -> None:
        """``timeout_s`` limits connecting and each silence, in addition to any requested wait. ``patience_s`` is how
        long a call is repeated after its first failure, if the service cannot be reached or is overloaded; 0: never.

        ``on_wait`` is called before each pause between two tries. By default a pause is logged as a warning of the
        logger ``corelane.client``.
        """
        self.base_url = base_url.rstrip("/")
        self._protocol = ServiceProtocol(self.base_url, timeout_s, patience_s)
        self._on_wait = on_wait
        self._http: Http = self._make_http(**http_options(self.base_url, api_key))


def request_arguments(call: Call[Any], protocol: ServiceProtocol) -> dict[str, Any]:
    """Return the library's arguments for a call, except its content."""
    timeout = httpx2.Timeout(protocol.timeout_s, read=protocol.timeout_s + call.wait_s)
    return {"method": call.method, "url": call.url, "params": call.params, "headers": call.headers, "timeout": timeout}
