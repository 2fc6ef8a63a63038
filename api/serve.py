"""Serve the application with Hypercorn: HTTP/1, and HTTP/2 if the operator wants it. Bound each connection."""

import asyncio
import gc
import resource
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import h11
import hypercorn.asyncio
import hypercorn.protocol
from hypercorn.config import Config
from hypercorn.events import RawData
from hypercorn.protocol.h11 import H11Protocol

from corelane.log import get_logger
from corelane.settings import Settings

log = get_logger(__name__)

#: Longest time for which a caller may take nothing of a response, in seconds.
SEND_TIMEOUT_S = 60.0

#: Most connections that wait to be accepted.
BACKLOG = 1024

#: A connection has this long for the head of its first request, and between two requests, in seconds. Trusted proxies
#: keep idle connections longer (an AWS load balancer 120 s), and may send a request into a connection that is being
#: closed.
KEEP_ALIVE_S, BEHIND_PROXY_S = 15, 150

#: Most bytes of a request's head.
HEAD_BYTES = 64 * 1024

#: Hypercorn 0.18 loses responses in progress when an HTTP/2 connection reaches this number of requests, so it is set
#: too high to be reached.
NO_LIMIT = 2**31

#: Connections that are cut when the server stops are closed within this time, in seconds.
CUT_S = 1.0

#: More open files than a process needs. Hosts without a real limit name one of a thousand million.
MOST_FILES = 65_536


class Http1Parser(h11.Connection):
    """Reads HTTP/1 alone."""

    def next_event(self) -> Any:
        """Return the next event; refuse a preface of HTTP/2 with 505, be it the first request or a later one."""
        event = super().next_event()
        if isinstance(event, h11.Request) and event.http_version >= b"2":
            raise h11.RemoteProtocolError("HTTP/2 is off: CORELANE_HTTP2=1 turns it on", error_status_hint=505)
        return event


class Http1(H11Protocol):
    """Hypercorn's HTTP/1. Hypercorn 0.18 has no option against HTTP/2 without TLS, so it is kept out here."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._unsent = b""
        self._offers_http2 = "h2" in self.config.alpn_protocols
        if not self._offers_http2:
            self.connection = Http1Parser(h11.SERVER, max_incomplete_event_size=self.config.h11_max_incomplete_size)

    async def _check_protocol(self, event: h11.Request) -> None:
        """Change to HTTP/2 on a preface or `Upgrade: h2c`. If it is off, such an upgrade is not heard of."""
        if self._offers_http2:
            await super()._check_protocol(event)

    async def _send_h11_event(self, event: Any) -> None:
        """Send the head of a response together with its body, if that follows at once."""
        try:
            self._unsent += self.connection.send(event) or b""
        except h11.LocalProtocolError:
            if self.connection.their_state != h11.ERROR:
                raise
            return
        if isinstance(event, h11.Response):
            asyncio.get_running_loop().call_soon(self._send_head)
        else:
            await self._send_unsent()

    def _send_head(self) -> None:
        if self._unsent:
            self.task_group.spawn(self._send_unsent)

    async def _send_unsent(self) -> None:
        data, self._unsent = self._unsent, b""
        if data:
            await self.send(RawData(data))


setattr(hypercorn.protocol, "H11Protocol", Http1)  # noqa: B010  # mypy refuses an assignment to a class


def raise_file_limit() -> None:
    """Let this process open as many files as it may, a connection each: a login shell's default is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, allowed), hard))


def make_config(settings: Settings, bind: str, grace_s: float) -> Config:
    """Return Hypercorn's configuration: a listening socket, and how long a stop waits for requests.

    There is no timeout for reading: it would end long polls, streams and downloads, in which callers send nothing.
    """
    config = Config()
    config.bind = [bind]
    [listener] = config.create_sockets().insecure_sockets
    # Connections inherit this option: the kernel cuts a connection whose caller does not receive what is sent.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * SEND_TIMEOUT_S))
    config.bind = [f"fd://{listener.detach()}"]
    config.backlog = BACKLOG
    config.graceful_timeout = grace_s
    config.keep_alive_timeout = BEHIND_PROXY_S if settings.trusted_hops else KEEP_ALIVE_S
    config.keep_alive_max_requests = NO_LIMIT
    config.h11_max_incomplete_size = HEAD_BYTES
    config.alpn_protocols = ["h2", "http/1.1"] if settings.http2 else ["http/1.1"]
    config.include_server_header = False
    return config


async def serve(app: Any, config: Config, asked_to_stop: Callable[[], Awaitable[object]]) -> None:
    """Serve until asked to stop. Then no more connections are accepted, and requests get the grace to end."""
    # The application stays for good. Otherwise each full garbage collection, which blocks all requests, takes 0.12 s
    # more.
    gc.freeze()
    asyncio.get_running_loop().set_exception_handler(_note_cut)
    asked = asyncio.ensure_future(asked_to_stop())
    running = hypercorn.asyncio.serve(app, config, shutdown_trigger=lambda: asked, mode="asgi")
    serving = asyncio.create_task(running)
    await asyncio.wait((serving, asked), return_when=asyncio.FIRST_COMPLETED)
    # Hypercorn has not stopped by then if callers do not read what was sent to them.
    await asyncio.wait((serving,), timeout=config.graceful_timeout + CUT_S)
    if serving.done():
        serving.result()
    else:
        log.warning("callers_left_behind", advice="they took nothing of their responses until the service stopped")
        # Hypercorn 0.18 cancels a connection once, and that then waits until all was sent (TCPServer._close). Until it
        # ends, the application is not asked to close what it holds.
        for task in asyncio.all_tasks():
            if getattr(task.get_coro(), "__name__", "") == "_server_callback":
                task.cancel()
        await asyncio.wait((serving,), timeout=CUT_S)


def _note_cut(loop: asyncio.AbstractEventLoop, trouble: dict[str, Any]) -> None:
    """Log a cut connection in one line; asyncio's streams would log everything that was in progress."""
    error = trouble.get("exception")
    if isinstance(error, OSError | asyncio.CancelledError):
        log.info("connection_cut", reason=str(error) or "the service stops")
    else:
        loop.default_exception_handler(trouble)
