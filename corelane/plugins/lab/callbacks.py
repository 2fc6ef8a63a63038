"""Where a process of the generator hears webhooks: a small receiver on loopback that checks signatures."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from corelane.errors import InvalidInput, SignatureRefused
from corelane.plugins.lab.http import read_head
from corelane.plugins.lab.senders import Failed, now

Called = asyncio.Future[tuple[dict[str, Any], float]]

HOST = "127.0.0.1"

ANSWER = "HTTP/1.1 {} -\r\nContent-Length: 0\r\n\r\n"


class Callbacks:
    """The webhooks that are expected, each at an address of its own."""

    def __init__(self, secret: str | None) -> None:
        if secret is None:
            raise InvalidInput(
                "--hearing webhook checks signatures: set CORELANE_WEBHOOK_SECRET to the service's secret. The service "
                "must allow this machine too: CORELANE_WEBHOOK_ALLOWED_NETWORKS=127.0.0.0/8"
            )
        # Read now, as a run does nothing but send; and here alone, as it makes other processes start slowly.
        from corelane.client.webhooks import verify_webhook

        self._verify, self._secret = verify_webhook, secret
        self._expected: dict[str, Called] = {}
        self._server: asyncio.Server | None = None
        self._port = 0

    async def open(self) -> None:
        """Listen on a free port."""
        self._server = await asyncio.start_server(self._serve, HOST, 0)
        self._port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Listen no more."""
        if self._server is not None:
            self._server.close()

    @contextmanager
    def expected(self, number: int) -> Iterator[tuple[str, Called]]:
        """Yield an address, and what brings the event posted there with the time when it came."""
        path = f"/{number}"
        self._expected[path] = called = asyncio.get_running_loop().create_future()
        try:
            yield f"http://{HOST}:{self._port}{path}", called
        finally:
            self._expected.pop(path, None)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                first, headers = await read_head(reader)
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                status = self._take(first.split(" ")[1], headers, body)
                writer.write(ANSWER.format(status).encode())
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError, IndexError):
            pass
        finally:
            writer.close()

    def _take(self, path: str, headers: dict[str, str], body: bytes) -> int:
        called = self._expected.get(path)
        try:
            event = self._verify(body, headers, self._secret)
        except SignatureRefused as error:
            if called is not None and not called.done():
                called.set_exception(Failed(error.code, error.detail))
            return 401
        if called is not None and not called.done():
            called.set_result((event, now()))
        return 204
