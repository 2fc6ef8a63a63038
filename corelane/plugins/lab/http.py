"""HTTP/1.1 for the generator: kept connections, opened before they are needed, and the moment of each first byte.

It does little on purpose: a generator that uses little CPU is rarely late, and leaves the CPU to a service on the same
machine. It has no proxies and no redirects. A connection that fails, or whose exchange is abandoned, is closed.
"""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import orjson

from corelane.errors import ServiceUnreachable

#: A kept connection is not used after this long, in seconds: services close theirs after 60 s or more.
KEPT_S = 30.0

#: Longest head of a response, in bytes.
MOST_HEAD_BYTES = 1 << 16

JSON_TYPE = {"Content-Type": "application/json"}


class Broken(ServiceUnreachable):
    """An exchange that ended without a response: the connection was refused or lost."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


@dataclass(slots=True)
class Response:
    """A response, and the time when the first byte of its request was sent, by the monotonic clock."""

    status: int
    headers: dict[str, str]
    body: bytes
    sent_s: float

    def json(self) -> Any:
        """Return the body, read as JSON; an empty object if it is something else."""
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError:
            return {}


@dataclass(slots=True)
class _Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    used_s: float = field(default_factory=time.monotonic)

    @property
    def is_fit(self) -> bool:
        is_closed = self.reader.at_eof() or self.writer.is_closing()
        return not is_closed and time.monotonic() - self.used_s < KEPT_S


class Connections:
    """Connections to one service, one for each exchange in progress. For one event loop."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        parts = urlsplit(url)
        self._host = parts.hostname or "127.0.0.1"
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._path = parts.path.rstrip("/")
        self._headers = {"Host": parts.netloc.rpartition("@")[2], **(headers or {})}
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._idle: list[_Connection] = []

    async def open(self, count: int) -> None:
        """Open connections in advance; raise Broken if the service cannot be reached."""
        opened = await asyncio.gather(*(self._connect() for _ in range(count - len(self._idle))))
        self._idle += opened

    async def close(self) -> None:
        """Close idle connections."""
        for each in self._idle:
            each.writer.close()
        self._idle.clear()

    async def exchange(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Response:
        """Send a request and return its response, whatever its status; raise Broken without one."""
        connection = await self._take()
        is_whole = False
        try:
            sent_s = self._send(connection, method, path, body, headers)
            status, found = await _read_status(connection.reader)
            parts = [part async for part in _read_body(connection.reader, status, found)]
            is_whole = found.get("connection", "").lower() != "close" and _has_end(status, found)
            return Response(status, found, b"".join(parts), sent_s)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
            raise Broken("connection_lost", f"{method} {path}: {error or type(error).__name__}") from None
        finally:
            self._give(connection, is_whole)

    async def lines(self, path: str, headers: Mapping[str, str] | None = None) -> AsyncIterator[bytes]:
        """Yield the lines of a stream as they arrive; raise Broken if its status is not 200, or if it breaks off."""
        connection = await self._take()
        try:
            self._send(connection, "GET", path, b"", headers)
            status, found = await _read_status(connection.reader)
            if status != 200:
                raise Broken("connection_lost", f"GET {path}: status {status}")
            rest = b""
            async for piece in _read_body(connection.reader, status, found):
                *whole, rest = (rest + piece).split(b"\n")
                for line in whole:
                    yield line.rstrip(b"\r")
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
            raise Broken("connection_lost", f"GET {path}: {error or type(error).__name__}") from None
        finally:
            self._give(connection, False)

    def _send(
        self, connection: _Connection, method: str, path: str, body: bytes, headers: Mapping[str, str] | None
    ) -> float:
        length = {"Content-Length": str(len(body))} if body or method != "GET" else {}
        given = self._headers | dict(headers or {}) | length
        lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        head = f"{method} {self._path}{path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1")
        sent_s = time.monotonic()
        connection.writer.write(head + body)
        return sent_s

    async def _take(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_fit:
                return connection
            connection.writer.close()
        return await self._connect()

    async def _connect(self) -> _Connection:
        try:
            reader, writer = await asyncio.open_connection(self._host, self._port, ssl=self._tls, limit=MOST_HEAD_BYTES)
        except OSError as error:
            where = f"{self._host}:{self._port}"
            raise Broken("connection_refused", f"nothing listens at {where}: {error.strerror or error}") from None
        return _Connection(reader, writer)

    def _give(self, connection: _Connection, is_whole: bool) -> None:
        if is_whole:
            connection.used_s = time.monotonic()
            self._idle.append(connection)
        else:
            connection.writer.close()


async def read_head(reader: asyncio.StreamReader) -> tuple[str, dict[str, str]]:
    """Return the first line of a request or response, and its headers, with names in lower case."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head[:-4].split("\r\n")
    return first, {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


async def _read_status(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    while True:
        first, headers = await read_head(reader)
        status = int(first.split(" ", 2)[1])
        if status >= 200:
            return status, headers


def _has_end(status: int, headers: Mapping[str, str]) -> bool:
    return status in (204, 304) or "content-length" in headers or "transfer-encoding" in headers


async def _read_body(reader: asyncio.StreamReader, status: int, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
    if status in (204, 304):
        return
    if "chunked" in headers.get("transfer-encoding", "").lower():
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            yield (await reader.readexactly(size + 2))[:-2]
        while await reader.readuntil(b"\r\n") != b"\r\n":
            pass
    elif "content-length" in headers:
        yield await reader.readexactly(int(headers["content-length"]))
    else:
        while piece := await reader.read(MOST_HEAD_BYTES):
            yield piece
