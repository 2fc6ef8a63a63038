"""``Client``: performs the exchanges of ``protocol.py`` with blocking calls, for scripts and threads."""

import time
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Any, Self, TypeVar

import httpx2

from corelane.client.endpoints import Call
from corelane.client.methods import ClientMethods
from corelane.client.steps import Exchange, HttpReply, IoStep, Iteration, OpenStream, Return, Send, Sleep, as_iteration
from corelane.client.transport import request_arguments

Reply = TypeVar("Reply")


class Client(ClientMethods[httpx2.Client]):
    """Talks to one service; safe to share between threads. Close it, or use it in a ``with``.

    A method's arguments and details are at its call in ``endpoints.py``, or its exchange in ``protocol.py``.
    """

    _make_http = httpx2.Client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _perform(self, exchange: Exchange[Reply]) -> Reply:
        with closing(self._iterate(as_iteration(exchange))) as replies:
            return next(replies)

    def _iterate(self, exchange: Iteration[Reply]) -> Generator[Reply, None, None]:
        outcome: Any = None
        with closing(exchange), closing(_Steps(self)) as steps:
            while True:
                try:
                    step = exchange.send(outcome)
                except StopIteration:
                    return
                outcome = None
                if isinstance(step, Return):
                    yield step.value
                else:
                    outcome = steps.perform(step)


class _Steps:
    """Performs the steps of one exchange, and holds its open stream."""

    def __init__(self, client: Client) -> None:
        self._http, self._protocol, self._on_wait = client._http, client._protocol, client._on_wait
        self._stream: httpx2.Response | None = None
        self._parts: Iterator[httpx2.ServerSentEvent | bytes] = iter(())

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()

    def perform(self, step: IoStep) -> object:
        """Return the outcome of a step; a failure of the connection is an outcome too."""
        if isinstance(step, Sleep):
            if step.wait is not None:
                self._on_wait(step.wait)
            time.sleep(step.seconds)
            return None
        try:
            if isinstance(step, Send):
                content = step.call.content() if callable(step.call.content) else step.call.content
                response = self._http.request(**request_arguments(step.call, self._protocol), content=content)
                return HttpReply(response.status_code, response.headers, response.content)
            if isinstance(step, OpenStream):
                return self._open_stream(step.call, step.is_events)
            return next(self._parts, None)
        except httpx2.HTTPError as error:
            return error

    def _open_stream(self, call: Call[Any], is_events: bool) -> HttpReply | None:
        self.close()
        request = self._http.build_request(**request_arguments(call, self._protocol))
        self._stream = self._http.send(request, stream=True)
        if self._stream.status_code != 200:
            return HttpReply(self._stream.status_code, self._stream.headers, self._stream.read())
        self._parts = iter(httpx2.EventSource(self._stream)) if is_events else self._stream.iter_bytes()
        return None
