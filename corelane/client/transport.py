"""The arguments that both clients give their HTTP library, and their default log line for a pause."""

import logging
from typing import Any

import httpx2

from corelane.client.endpoints import Call
from corelane.client.protocol import ServiceProtocol, Wait
from corelane.client.wire import checked_key, host_of
from corelane.errors import InvalidInput

#: Time after which an idle connection is closed, in seconds: long before the service (75 s) or a proxy closes it, so
#: that no job is sent into a closed connection.
KEEPALIVE_S = 2.0

#: Connections one client holds at most.
MAX_CONNECTIONS = 100

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

    A service on this machine is asked directly, even if the environment names a proxy.
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


def timeout_of(call: Call[Any], protocol: ServiceProtocol) -> httpx2.Timeout:
    """Return the longest time for connecting, and the longest silence while a call is answered."""
    return httpx2.Timeout(protocol.timeout_s, read=protocol.timeout_s + call.wait_s)
