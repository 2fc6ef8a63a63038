"""``AsyncClient``: performs the exchanges of ``protocol.py`` with asyncio; the methods are those of ``Client``."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable
from contextlib import aclosing, closing
from typing import Any, Self, TypeVar

import httpx2

from corelane.client.endpoints import Call
from corelane.client.methods import ClientMethods
from corelane.client.steps import Exchange, HttpReply, IoStep, Iteration, OpenStream, Return, Send, Sleep, as_iteration
from corelane.client.transport import request_arguments

Reply = TypeVar("Reply")


class AsyncClient(ClientMethods[httpx2.AsyncClient]):
    """Talks to one service from one event loop. Close it, or use it in an ``async with``.

    A method's arguments and details are at its call in ``endpoints.py``, or its exchange in ``protocol.py``.
    """

    _make_http = httpx2.AsyncClient

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def _perform(self, exchange: Exchange[Reply]) -> Reply:
        async with aclosing(self._iterate(as_iteration(exchange))) as replies:
            return await anext(replies)

    async def _iterate(self, exchange: Iteration[Reply]) -> AsyncGenerator[Reply, None]:
        outcome: Any = None
        with closing(exchange):
            async with aclosing(_AsyncSteps(self)) as steps:
                while True:
                    try:
                        step = exchange.send(outcome)
                    except StopIteration:
                        return
                    outcome = None
                    if isinstance(step, Return):
                        yield step.value
                    else:
                        outcome = await steps.perform(step)


class _AsyncSteps:
    """Performs the steps of one exchange, and holds its open stream."""

    def __init__(self, client: AsyncClient) -> None:
        self._http, self._protocol, self._on_wait = client._http, client._protocol, client._on_wait
        self._stream: httpx2.Response | None = None
        self._parts: AsyncIterator[httpx2.ServerSentEvent | bytes] | None = None

    async def aclose(self) -> None:
        if self._stream is not None:
            await self._stream.aclose()

    async def perform(self, step: IoStep) -> object:
        """Return the outcome of a step; a failure of the connection is an outcome too."""
        if isinstance(step, Sleep):
            if step.wait is not None:
                self._on_wait(step.wait)
            await asyncio.sleep(step.seconds)
            return None
        try:
            if isinstance(step, Send):
                content = step.call.content() if callable(step.call.content) else step.call.content
                if content is not None and not isinstance(content, bytes | AsyncIterable):
                    content = _as_async(content)
                response = await self._http.request(**request_arguments(step.call, self._protocol), content=content)
                return HttpReply(response.status_code, response.headers, response.content)
            if isinstance(step, OpenStream):
                return await self._open_stream(step.call, step.is_events)
            return None if self._parts is None else await anext(self._parts, None)
        except httpx2.HTTPError as error:
            return error

    async def _open_stream(self, call: Call[Any], is_events: bool) -> HttpReply | None:
        await self.aclose()
        request = self._http.build_request(**request_arguments(call, self._protocol))
        self._stream = await self._http.send(request, stream=True)
        if self._stream.status_code != 200:
            return HttpReply(self._stream.status_code, self._stream.headers, await self._stream.aread())
        self._parts = aiter(httpx2.EventSource(self._stream)) if is_events else self._stream.aiter_bytes()
        return None


async def _as_async(pieces: Iterable[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece
