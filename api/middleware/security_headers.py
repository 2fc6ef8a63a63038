"""The layer that tells browsers how to treat every response, and refuses host names that are not ours. Pure ASGI."""

from collections.abc import Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import refuse
from api.header_policies import PAGE, STRICT
from corelane.errors import HostRefused

#: Probes are addressed to whatever address a machine has.
PROBES = ("/livez", "/readyz")


class SafeHeaders:
    """Add the headers of ``api.header_policies`` where a response lacks them; refuse hosts that are not on the list."""

    def __init__(self, app: ASGIApp, allowed_hosts: Sequence[str] = ()) -> None:
        self._app = app
        self._hosts = tuple(host.lower() for host in allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        policy = PAGE if scope["path"] == "/docs" else STRICT

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in policy.items():
                    headers.setdefault(name, value)
            await send(message)

        if self._hosts and scope["path"] not in PROBES and not self._is_ours(Headers(scope=scope).get("host", "")):
            error = HostRefused("this service is not reached by that host name; CORELANE_ALLOWED_HOSTS has its names")
            await refuse(scope, receive, send_with_headers, error)
            return
        await self._app(scope, receive, send_with_headers)

    def _is_ours(self, address: str) -> bool:
        host = host_name(address)
        return any(
            host == name or name == "*" or (name.startswith("*.") and host.endswith(name[1:])) for name in self._hosts
        )


def host_name(address: str) -> str:
    """The name in a Host header, without its port, in lower case; an IPv6 address without its brackets."""
    text = address.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.rpartition(":")[0] if ":" in text else text
