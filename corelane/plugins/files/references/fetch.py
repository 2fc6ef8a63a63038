"""One request for a job's input or output: only to checked addresses, and with a time limit.

A redirect is followed if its target passes the same checks as the first URL. An error never contains a URL's query,
which may be a key.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO
from urllib.parse import urljoin

import httpcore2
from ssrfguard import Resolver

from corelane.domain.job_references import without_query
from corelane.errors import UrlRefused
from corelane.plugins.files.references.checks import find_reference_route
from corelane.settings import Settings
from corelane.webhooks.addresses import MOST_ADDRESSES, Route
from corelane.webhooks.post import FAILURES, default_tls, request_of, text_of

#: Longest time from a job's submission until its input is given up, and longest time of one attempt, in seconds.
INPUT_TIMEOUT_S = 3600.0

#: Longest silence of a server, and longest time to connect, in seconds.
SILENCE_S = 30.0

#: Most redirects that are followed.
MOST_REDIRECTS = 3

REDIRECTS = frozenset((301, 302, 303, 307, 308))

#: An object is sent in pieces of this size, in bytes.
PIECE_BYTES = 256 * 1024


class FetchFailed(Exception):
    """The server, its name or its network failed; another attempt may succeed."""


@dataclass(frozen=True, slots=True)
class FetchedObject:
    """A server's response: its status, its headers in lower case, and its body."""

    status: int
    headers: Mapping[str, str]
    body: Iterator[bytes]


class CheckedConnections(httpcore2.NetworkBackend):
    """Connects to a route's checked addresses only, or to the proxy, and ends with the time of the request."""

    def __init__(self, route: Route, proxy: httpcore2.Proxy | None, deadline: "Deadline") -> None:
        checked = [str(address.ip) for address in route.addresses[:MOST_ADDRESSES]]
        self._addresses = checked if proxy is None else [proxy.url.host.decode()]
        self._deadline = deadline
        self._backend = httpcore2.SyncBackend()

    def connect_tcp(self, host: str, port: int, *_: Any, **__: Any) -> httpcore2.NetworkStream:  # noqa: ARG002
        """Connect to the first checked address that accepts, whatever ``host`` says."""
        failures = []
        for address in self._addresses:
            try:
                left_s = self._deadline.left(SILENCE_S / len(self._addresses))
                return TimedStream(self._backend.connect_tcp(address, port, left_s), self._deadline)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failures.append(f"{address}: {text_of(error)}")
        raise httpcore2.ConnectError("; ".join(failures))


class Deadline:
    """The end of the time that one request may take, redirects too."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._until = seconds, time.monotonic() + seconds

    def left(self, most: float | None) -> float:
        """Return the seconds that are left, or ``most`` if that is less; raise TimeoutError if none are."""
        if (left := self._until - time.monotonic()) <= 0:
            raise TimeoutError(f"more than {self._seconds:g} s")
        return left if most is None else min(left, most)


class TimedStream(httpcore2.NetworkStream):
    """A connection that ends in time, however slowly its server sends, be it a byte at a time."""

    def __init__(self, stream: httpcore2.NetworkStream, deadline: Deadline) -> None:
        self._stream, self._deadline = stream, deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """Read what comes first."""
        return self._stream.read(max_bytes, self._deadline.left(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Write all of it."""
        self._stream.write(buffer, self._deadline.left(timeout))

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()

    def start_tls(self, *given: Any, **named: Any) -> httpcore2.NetworkStream:
        """Return the connection, encrypted from now on."""
        named["timeout"] = self._deadline.left(named.get("timeout"))
        return TimedStream(self._stream.start_tls(*given, **named), self._deadline)

    def get_extra_info(self, info: str) -> Any:
        """Return what the connection says of itself."""
        return self._stream.get_extra_info(info)


@contextmanager
def get(
    settings: Settings,
    url: str,
    headers: Mapping[str, str],
    is_allowed: Callable[[str], bool],
    *,
    seconds: float = INPUT_TIMEOUT_S,
    resolver: Resolver | None = None,
) -> Iterator[FetchedObject]:
    """Get an object within some seconds; yield the response, whatever its status. Raise UrlRefused or FetchFailed."""
    deadline = Deadline(seconds)
    for _ in range(MOST_REDIRECTS + 1):
        with _ask(settings, "GET", url, headers, None, resolver, deadline) as response:
            if response.status not in REDIRECTS:
                yield response
                return
            target = urljoin(url, response.headers.get("location", ""))
        if not is_allowed(target):
            raise UrlRefused(f"{without_query(url)} redirects to {without_query(target)[:200]!r}, which is not allowed")
        url = target
    raise UrlRefused(f"{without_query(url)} redirects too often")


def put(
    settings: Settings, url: str, headers: Mapping[str, str], content: BinaryIO, *, resolver: Resolver | None = None
) -> int:
    """Put an object, whose size is in the headers; return the status. Raise UrlRefused or FetchFailed."""
    pieces = iter(lambda: content.read(PIECE_BYTES), b"")
    with _ask(settings, "PUT", url, headers, pieces, resolver, Deadline(INPUT_TIMEOUT_S)) as response:
        return response.status


@contextmanager
def _ask(
    settings: Settings,
    method: str,
    url: str,
    headers: Mapping[str, str],
    content: Iterator[bytes] | None,
    resolver: Resolver | None,
    deadline: Deadline,
) -> Iterator[FetchedObject]:
    try:
        route = find_reference_route(settings, url, resolver)
        proxy = None if settings.webhook_proxy is None else httpcore2.Proxy(settings.webhook_proxy)
        origin, sent = request_of(route.target, url, headers)
        timeout = dict.fromkeys(("connect", "read", "write", "pool"), SILENCE_S)
        with (
            httpcore2.ConnectionPool(
                default_tls(), proxy, network_backend=CheckedConnections(route, proxy, deadline)
            ) as pool,
            pool.stream(method, origin, headers=sent, content=content, extensions={"timeout": timeout}) as response,
        ):
            found = {name.decode().lower(): value.decode("latin-1") for name, value in response.headers}
            yield FetchedObject(response.status, found, response.iter_stream())
    except FAILURES as failure:
        raise FetchFailed(text_of(failure)) from None
