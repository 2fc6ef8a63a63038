"""One attempt: a POST to a checked address that ends in time, whatever the receiver does.

The time includes every step: name, connection, handshake, head and beginning of the response. No redirect is followed,
and only the status and a kilobyte are read. Connections are httpcore2's, the layer below httpx2 in which a backend can
choose where to connect.
"""

import asyncio
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from functools import cache, partial
from typing import Any
from urllib.parse import quote, urlsplit

import certifi
import httpcore2
from ssrfguard import Resolver, SSRFGuardError, Target

from corelane.errors import WebhookRefused
from corelane.settings import Settings
from corelane.webhooks.addresses import MOST_ADDRESSES, Route, find_route
from corelane.webhooks.protocol import WebhookReply

#: How much of a response's body is kept, in bytes.
SNIPPET_BYTES = 1024

#: How much of an error's text is kept, in characters.
ERROR_CHARS = 500

#: Characters that stay as they are in a path and a query; all others are escaped.
SAFE = "/%:@!$&'()*+,;=-._~?"

#: Errors of a receiver, its name, its network or the proxy.
FAILURES = (
    *(httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException, httpcore2.ProxyError),
    *(SSRFGuardError, OSError, ValueError),
)


class CheckedBackend(httpcore2.AsyncNetworkBackend):
    """Connects only to a route's checked addresses, or to the proxy; finally closes all that it has opened."""

    def __init__(self, route: Route, proxy: httpcore2.Proxy | None, seconds: float) -> None:
        checked = [str(address.ip) for address in route.addresses[:MOST_ADDRESSES]]
        self._addresses = checked if proxy is None else [proxy.url.host.decode()]
        self._until = time.monotonic() + seconds
        self._backend = httpcore2.AnyIOBackend()
        self._opened: list[httpcore2.AsyncNetworkStream] = []

    async def connect_tcp(self, host: str, port: int, *_: Any, **__: Any) -> httpcore2.AsyncNetworkStream:  # noqa: ARG002
        """Connect to the first checked address that accepts, whatever ``host`` is. Addresses share the time left."""
        failures = []
        for place, address in enumerate(self._addresses):
            share_s = max(0.0, self._until - time.monotonic()) / (len(self._addresses) - place)
            try:
                self._opened.append(await self._backend.connect_tcp(address, port, share_s))
                return self._opened[-1]
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failures.append(f"{address}: {text_of(error)}")
        raise httpcore2.ConnectError("; ".join(failures))

    async def aclose(self) -> None:
        """Close the connections: a handshake that was interrupted leaves its connection open."""
        for stream in self._opened:
            await stream.aclose()


async def post_event(
    settings: Settings,
    url: str,
    headers: Mapping[str, str],
    payload: bytes,
    *,
    resolver: Resolver | None = None,
    tls: ssl.SSLContext | None = None,
) -> WebhookReply:
    """Make the attempt. A failure of the receiver, its name or its network is returned in the reply, never raised."""
    began, timeout_s = time.monotonic(), settings.webhook_timeout_s
    status, duration_ms, body = 0, 0, b""
    error: str | None = None
    retry_after: bytes | None = None

    def spent_ms() -> int:
        return round(1000 * (time.monotonic() - began))

    try:
        async with asyncio.timeout(timeout_s):
            route = await _in_thread(partial(find_route, settings, url, resolver))
            origin, sent = request_of(route.target, url, headers)
            proxy = None if settings.webhook_proxy is None else httpcore2.Proxy(settings.webhook_proxy)
            backend = CheckedBackend(route, proxy, timeout_s)
            async with (
                aclosing(backend),
                httpcore2.AsyncConnectionPool(tls or default_tls(), proxy, network_backend=backend) as pool,
                pool.stream("POST", origin, headers=sent, content=payload) as response,
            ):
                status, duration_ms = response.status, spent_ms()
                retry_after = {name.lower(): value for name, value in response.headers}.get(b"retry-after")
                async for chunk in response.aiter_stream():
                    body += chunk
                    if len(body) >= SNIPPET_BYTES:
                        break
    except WebhookRefused as refused:
        error = refused.detail
    except TimeoutError:
        error = f"no response within {timeout_s:g} s"
    except httpcore2.ProxyError as refused:
        error = f"the proxy refused: {refused}"
    except FAILURES as failure:
        error = text_of(failure)
    if status:  # the status counts, whatever became of the body
        error = "redirects are not followed" if 300 <= status < 400 else None
    return WebhookReply(
        status,
        duration_ms or spent_ms(),
        body[:SNIPPET_BYTES].decode(errors="replace").encode()[:SNIPPET_BYTES].decode(errors="ignore"),
        None if error is None else error[:ERROR_CHARS],
        None if retry_after is None else retry_after.decode("latin-1"),
    )


@cache
def default_tls() -> ssl.SSLContext:
    """Return settings of TLS that trust the authorities of the system (SSL_CERT_FILE is used) and of Mozilla."""
    tls = ssl.create_default_context()
    tls.load_verify_locations(certifi.where())
    return tls


def request_of(target: Target, url: str, headers: Mapping[str, str]) -> tuple[httpcore2.URL, list[tuple[str, str]]]:
    """Return the checked origin with a URL's path and query, escaped as needed; and the headers to send."""
    parts = urlsplit(url)
    path = quote(parts.path or "/", SAFE) + (f"?{quote(parts.query, SAFE)}" if parts.query else "")
    host = f"[{target.host}]" if ":" in target.host else target.host
    port = None if target.port == (443 if target.scheme == "https" else 80) else target.port
    origin = httpcore2.URL(scheme=target.scheme, host=target.host, port=port, target=path)
    return origin, [*headers.items(), ("host", host if port is None else f"{host}:{port}"), ("connection", "close")]


async def _in_thread(call: Callable[[], Route]) -> Route:
    """Call in a new thread: a name server may take unlimited time, and would fill up a pool of threads."""
    loop = asyncio.get_running_loop()
    found: asyncio.Future[Route] = loop.create_future()

    def settle(result: Route | None, error: Exception | None) -> None:
        if not found.done():
            found.set_exception(error) if error else found.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result, error = None, None
        try:
            result = call()
        except Exception as failure:  # raised where it is awaited
            error = failure
        with suppress(RuntimeError):  # the sender may have ended meanwhile
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=run, name="resolve", daemon=True).start()
    return await found


def text_of(error: BaseException) -> str:
    """Return the root cause of an error as text; the outer errors say less."""
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {error}"
