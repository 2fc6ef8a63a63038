"""One attempt: a POST to a checked address, over within its time whatever the receiver does.

The time counts from the first step to the last: names, connections, handshake, the answer's head and its beginning.
When it is over, the socket is shut under whoever reads from it, so a receiver that drips a byte a second holds nobody
up. Nothing is followed, and nothing is read but the status and a kilobyte.
"""

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from urllib.parse import quote, urlsplit

import certifi
from ssrfguard import Resolver, SSRFGuardError, Target, connect

from corelane.errors import WebhookRefused
from corelane.settings import Settings
from corelane.webhooks.addresses import MOST_ADDRESSES, Route, find_route
from corelane.webhooks.retries import Reply

#: What is kept of an answer's body, in bytes.
SNIPPET_BYTES = 1024

#: What is kept of an error's text, in characters.
ERROR_CHARS = 500

#: Longest head of a proxy's answer to CONNECT, in bytes.
PROXY_HEAD_BYTES = 8192

#: What a path and a query hold as they are; all else is escaped.
SAFE = "/%:@!$&'()*+,;=-._~?"


class Deadline:
    """The time of one attempt."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._began = time.monotonic()

    @property
    def spent_ms(self) -> int:
        """Milliseconds since it began."""
        return round(1000 * (time.monotonic() - self._began))

    @property
    def is_over(self) -> bool:
        """Whether no time is left."""
        return time.monotonic() - self._began >= self._seconds

    def left(self) -> float:
        """Seconds that are left; raises TimeoutError if none are."""
        left = self._seconds - (time.monotonic() - self._began)
        if left <= 0:
            raise TimeoutError(f"not over after {self._seconds:g} s")
        return left

    @contextmanager
    def holds(self, open_socket: socket.socket) -> Iterator[None]:
        """Shut a socket when the time is over, under whoever waits for it; closed in the end."""
        open_socket.settimeout(self.left())
        timer = threading.Timer(self.left(), _shut, (open_socket,))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            open_socket.close()


def post_event(
    settings: Settings,
    url: str,
    headers: Mapping[str, str],
    payload: bytes,
    *,
    resolver: Resolver | None = None,
    tls: ssl.SSLContext | None = None,
) -> Reply:
    """Make the attempt. Never raises for what a receiver, its name or its network does: that is in the reply."""
    deadline = Deadline(settings.webhook_timeout_s)
    try:
        route = _find_in_time(settings, url, resolver, deadline)
        plain = _open_plain(settings, route, deadline)
        if route.target.scheme == "http":
            return _exchange(settings, route.target, url, headers, payload, plain, deadline)
        context = tls or default_tls()
        with deadline.holds(plain):
            if settings.webhook_proxy is not None:
                _tunnel(plain, route.target)
            secure = context.wrap_socket(plain, server_hostname=route.target.host, do_handshake_on_connect=False)
        return _exchange(settings, route.target, url, headers, payload, secure, deadline)
    except WebhookRefused as error:
        return Reply(0, deadline.spent_ms, error=error.detail[:ERROR_CHARS])
    except (OSError, http.client.HTTPException, SSRFGuardError, ValueError) as error:
        late = f"no answer within {settings.webhook_timeout_s:g} s"
        text = late if deadline.is_over else f"{type(error).__name__}: {error}"
        return Reply(0, deadline.spent_ms, error=text[:ERROR_CHARS])


@cache
def default_tls() -> ssl.SSLContext:
    """Certificates are checked against the system's authorities (SSL_CERT_FILE is heeded) and Mozilla's."""
    context = ssl.create_default_context()
    context.load_verify_locations(certifi.where())
    return context


def _find_in_time(settings: Settings, url: str, resolver: Resolver | None, deadline: Deadline) -> Route:
    """Resolve and check, in a thread of its own: nothing else bounds the time that a name server may take."""
    found: list[Route | BaseException] = []

    def find() -> None:
        try:
            found.append(find_route(settings, url, resolver))
        except Exception as error:  # handed to the thread that waits
            found.append(error)

    thread = threading.Thread(target=find, name="resolve", daemon=True)
    thread.start()
    thread.join(deadline.left())
    if not found:
        raise TimeoutError("its name is not resolved yet")
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]


def _open_plain(settings: Settings, route: Route, deadline: Deadline) -> socket.socket:
    """A connection to one of the checked addresses, the first that takes it, or to the proxy."""
    if settings.webhook_proxy is not None:
        proxy = urlsplit(settings.webhook_proxy)
        return socket.create_connection((proxy.hostname or "", proxy.port or 80), timeout=deadline.left())
    addresses = route.addresses[:MOST_ADDRESSES]
    failures = []
    for place, address in enumerate(addresses):
        try:
            return connect([address], policy=route.policy, timeout=deadline.left() / (len(addresses) - place))
        except OSError as error:
            failures.append(str(error))
    raise ConnectionError("; ".join(failures))


def _tunnel(plain: socket.socket, target: Target) -> None:
    """Have the proxy connect to the receiver; raises ConnectionError with its status if it refuses."""
    origin = f"[{target.host}]" if ":" in target.host else target.host
    head = f"CONNECT {origin}:{target.port} HTTP/1.1\r\nHost: {origin}:{target.port}\r\n\r\n"
    plain.sendall(head.encode("ascii"))
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        piece = plain.recv(1)
        if not piece or len(answer) > PROXY_HEAD_BYTES:
            raise ConnectionError("the proxy did not answer CONNECT")
        answer += piece
    status = answer.split(b"\r\n", 1)[0].decode("ascii", "replace")
    if status.split(" ")[1:2] != ["200"]:
        raise ConnectionError(f"the proxy refused: {status}")


def _exchange(
    settings: Settings,
    target: Target,
    url: str,
    headers: Mapping[str, str],
    payload: bytes,
    open_socket: socket.socket,
    deadline: Deadline,
) -> Reply:
    """Send the request over a connection that is there, and read what is kept of the answer."""
    with deadline.holds(open_socket):
        if isinstance(open_socket, ssl.SSLSocket):
            open_socket.do_handshake()
        connection = http.client.HTTPConnection(target.host, target.port)
        connection.auto_open = 0  # it must not connect by name, whatever happens
        connection.sock = open_socket
        parts = urlsplit(url)
        path = quote(parts.path or "/", SAFE) + (f"?{quote(parts.query, SAFE)}" if parts.query else "")
        host = _host_header(target)
        is_proxied = settings.webhook_proxy is not None and target.scheme == "http"
        place = f"http://{host}{path}" if is_proxied else path
        connection.request("POST", place, payload, {**headers, "host": host, "connection": "close"})
        response = connection.getresponse()
        deadline.left()  # a head that was cut off because the time is over is no answer
        return Reply(
            response.status,
            deadline.spent_ms,
            _snippet(response),
            "redirects are not followed" if 300 <= response.status < 400 else None,
            response.headers.get("retry-after"),
        )


def _host_header(target: Target) -> str:
    host = f"[{target.host}]" if ":" in target.host else target.host
    is_default = target.port == (443 if target.scheme == "https" else 80)
    return host if is_default else f"{host}:{target.port}"


def _snippet(response: http.client.HTTPResponse) -> str:
    """The beginning of the answer's body, as far as it comes; a status stands, whatever the body does."""
    begin = b""
    with suppress(OSError, http.client.HTTPException, ValueError):
        while len(begin) < SNIPPET_BYTES and (piece := response.read1(SNIPPET_BYTES - len(begin))):
            begin += piece
    return begin.decode(errors="replace").encode()[:SNIPPET_BYTES].decode(errors="ignore")


def _shut(open_socket: socket.socket) -> None:
    """Shut the connection itself, not its TLS layer, which another thread is using."""
    with suppress(OSError):
        socket.socket.shutdown(open_socket, socket.SHUT_RDWR)
