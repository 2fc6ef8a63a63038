import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from corelane.plugins.lab.http import Broken, Connections, read_head

Found = TypeVar("Found")


def against(answers: list[bytes], use: Callable[[Connections], Awaitable[Found]]) -> tuple[Found, list[str]]:
    """Use connections to a server that gives these answers, one each; return what came of it and the first lines."""
    asked: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while answers:
                first, headers = await read_head(reader)
                await reader.readexactly(int(headers.get("content-length", 0)))
                asked.append(first)
                answer = answers.pop(0)
                writer.write(answer)
                if b"Content-Length" not in answer and b"chunked" not in answer:
                    break
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    async def run() -> Found:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            connections = Connections(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/base/")
            try:
                return await use(connections)
            finally:
                await connections.close()

    return asyncio.run(run()), asked


async def twice(connections: Connections) -> list[tuple[int, bytes]]:
    found = [await connections.exchange("POST", "/a", b"{}"), await connections.exchange("GET", "/b")]
    return [(each.status, each.body) for each in found]


WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nit"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;x=y\r\ni\r\n1\r\nt\r\n0\r\n\r\n"
TO_THE_END = b"HTTP/1.1 200 OK\r\n\r\nit"
EARLY = b"HTTP/1.1 100 Continue\r\n\r\n" + WHOLE


@pytest.mark.parametrize("first", [WHOLE, CHUNKED, TO_THE_END, EARLY], ids=["length", "chunks", "end", "continue"])
def test_responses_of_every_kind_are_read_whole(first: bytes) -> None:
    found, asked = against([first, WHOLE], twice)
    assert found == [(200, b"it"), (200, b"it")]
    assert asked == ["POST /base/a HTTP/1.1", "GET /base/b HTTP/1.1"]


def test_a_response_that_breaks_off_is_no_response() -> None:
    async def use(connections: Connections) -> str:
        with pytest.raises(Broken) as broken:
            await connections.exchange("GET", "/a")
        return broken.value.kind

    assert against([b"HTTP/1.1 200 OK\r\nX-Length: 9\r\n"], use)[0] == "connection_lost"


def test_a_stream_is_read_line_by_line() -> None:
    async def use(connections: Connections) -> list[bytes]:
        return [line async for line in connections.lines("/events")]

    chunked = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\na: b\r\n7\r\nc\r\n\r\nd:\r\n1\r\n\n\r\n0\r\n\r\n"
    )
    assert against([chunked], use)[0] == [b"a: bc", b"", b"d:"]


def test_a_stream_that_is_refused_is_broken() -> None:
    async def use(connections: Connections) -> str:
        with pytest.raises(Broken, match="404") as broken:
            _ = [line async for line in connections.lines("/events")]
        return broken.value.kind

    assert against([b"HTTP/1.1 404 -\r\nContent-Length: 0\r\n\r\n"], use)[0] == "connection_lost"
