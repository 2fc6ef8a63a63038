"""Receivers of webhooks that answer as they are told to, on real sockets."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from corelane.webhooks import post
from corelane.webhooks.protocol import WebhookReply

#: What to answer to the request of a number, from 0: status, headers, body.
Answers = Callable[[int], tuple[int, dict[str, str], bytes]]


@dataclass
class Post:
    """One request as it came."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    url: str
    posts: list[Post] = field(default_factory=list)

    @property
    def ids(self) -> list[str]:
        return [post.headers["webhook-id"] for post in self.posts]


@contextmanager
def receiver(answers: Answers = lambda _: (204, {}, b""), host: str = "127.0.0.1") -> Iterator[Receiver]:
    """Start a receiver that takes many requests at a time."""
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["content-length"])
            body = self.rfile.read(length)
            if len(body) < length:  # the sender died in the middle of its request
                return
            with lock:
                number = len(found.posts)
                headers = {name.lower(): value for name, value in self.headers.items()}
                found.posts.append(Post(self.path, headers, body))
            status, more, content = answers(number)
            self.send_response(status)
            for name, value in more.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer((host, 0), Handler)
    found = Receiver(f"http://{host}:{server.server_address[1]}/hook")
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()


@dataclass
class Listener:
    port: int
    connections: int = 0


@contextmanager
def listener(pieces: Callable[[], Iterator[bytes]] = lambda: iter(())) -> Iterator[Listener]:
    """Count connections, and send each the bytes it is told to; then hold them open."""
    server = socket.create_server(("127.0.0.1", 0))
    found, taken = Listener(server.getsockname()[1]), []

    def talk(one: socket.socket) -> None:
        with suppress(OSError):
            for piece in pieces():
                one.sendall(piece)

    def accept() -> None:
        with suppress(OSError):
            while True:
                one, _ = server.accept()
                found.connections += 1
                taken.append(one)
                threading.Thread(target=talk, args=(one,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield found
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        for one in taken:
            one.close()


def dripping(text: bytes, pause_s: float = 0.05) -> Callable[[], Iterator[bytes]]:
    """Yield a text, a byte at a time, and its last one for ever."""

    def pieces() -> Iterator[bytes]:
        for byte in text:
            yield bytes([byte])
            time.sleep(pause_s)
        while True:
            yield text[-1:]
            time.sleep(pause_s)

    return pieces


def post_event(*request: Any, **options: Any) -> WebhookReply:
    """Make one attempt, in an event loop of its own."""

    async def attempt() -> WebhookReply:
        reply = await post.post_event(*request, **options)
        await asyncio.sleep(0.01)  # closed sockets go with the next turns of the loop
        return reply

    return asyncio.run(attempt())
