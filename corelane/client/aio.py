"""``AsyncClient``: performs the exchanges of ``protocol.py`` with asyncio; the methods are those of ``Client``."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Coroutine, Iterable
from contextlib import aclosing, closing
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import httpx2

from corelane.client import asking, contexts, endpoints, forecasts, steering
from corelane.client.endpoints import Call
from corelane.client.protocol import Exchange, Give, Giving, Hear, HttpReply, IoStep, Listen, Pause, Send
from corelane.client.protocol import ServiceProtocol as Protocol
from corelane.client.transport import BaseClient, as_method, request_arguments

Answer = TypeVar("Answer")
P = ParamSpec("P")


def _call(make: Callable[P, Call[Answer]]) -> "Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, Answer]]":
    async def method(self: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> Answer:
        return await self._perform(self._protocol.call(make(*args, **kwargs)))

    return as_method(method, make)


def _exchange(
    make: Callable[Concatenate[Protocol, P], Exchange[Answer]],
) -> "Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, Answer]]":
    async def method(self: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> Answer:
        return await self._perform(make(self._protocol, *args, **kwargs))

    return as_method(method, make)


def _iterate(
    make: Callable[Concatenate[Protocol, P], Giving[Answer]],
) -> "Callable[Concatenate[AsyncClient, P], AsyncGenerator[Answer, None]]":
    def method(self: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> AsyncGenerator[Answer, None]:
        return self._iterate(make(self._protocol, *args, **kwargs))

    return as_method(method, make)


class AsyncClient(BaseClient[httpx2.AsyncClient]):
    """Talks to one service from one event loop. Close it, or use it in an ``async with``.

    A method's arguments and details stand at its call in ``endpoints.py``, or its exchange in ``protocol.py``.
    """

    _make_http = httpx2.AsyncClient

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    ask = _exchange(asking.ask)
    submit = _exchange(Protocol.submit)
    forecast = _exchange(forecasts.forecast)
    forecast_lines = _call(forecasts.forecast_lines_async)
    submit_lines = _call(endpoints.submit_lines_async)
    get = _call(endpoints.get_job)
    wait = _exchange(Protocol.wait)
    iter_results = _iterate(Protocol.results)
    iter_jobs = _iterate(Protocol.jobs)
    iter_failed_items = _iterate(steering.failed_items)
    failure_groups = _exchange(steering.failure_groups)
    bulk = _exchange(steering.bulk)
    retry = _call(endpoints.retry)
    delete = _call(endpoints.delete_job)
    iter_events = _iterate(Protocol.events)
    drop_results = _call(endpoints.drop_results)
    cancel = _call(endpoints.cancel)

    batch = _exchange(Protocol.batch)
    create_batch = _call(endpoints.create_batch)
    forecast_batch = _call(forecasts.forecast_batch)
    get_batch = _call(endpoints.get_batch)
    iter_batches = _iterate(Protocol.batches)
    cancel_batch = _call(endpoints.cancel_batch)
    upload_file = _call(endpoints.upload_file)
    get_file = _call(endpoints.get_file)
    iter_files = _iterate(Protocol.files)
    download_file = _exchange(Protocol.download)
    delete_file = _call(endpoints.delete_file)

    put_context = _call(contexts.put_context)
    get_context = _call(contexts.get_context)
    read_context = _call(contexts.read_context)
    iter_contexts = _iterate(contexts.contexts)
    delete_context = _call(contexts.delete_context)

    deliveries = _call(endpoints.list_deliveries)
    dead_deliveries = _call(endpoints.dead_deliveries)
    get_delivery = _call(endpoints.get_delivery)
    redeliver = _call(endpoints.redeliver)

    overview = _call(endpoints.overview)
    scaling = _call(endpoints.scaling)
    history = _call(endpoints.history)
    usage = _call(steering.usage)
    clear_cache = _call(steering.clear_cache)
    webhook_secrets = _call(steering.webhook_secrets)
    create_webhook_secret = _call(steering.create_webhook_secret)
    rotate_webhook_secret = _call(steering.rotate_webhook_secret)
    remove_webhook_secret = _call(steering.remove_webhook_secret)
    cores = _call(endpoints.cores)
    models = _call(endpoints.models)
    load_model = _call(endpoints.load_model)
    reload_model = _call(endpoints.reload_model)
    unload_model = _call(endpoints.unload_model)
    aliases = _call(endpoints.aliases)
    set_alias = _call(endpoints.set_alias)
    unset_alias = _call(endpoints.unset_alias)
    pause = _call(steering.pause)
    resume = _call(steering.resume)
    pauses = _call(steering.pauses)
    iter_audit = _iterate(steering.audit)
    ready = _exchange(Protocol.ready)

    async def _perform(self, exchange: Exchange[Answer]) -> Answer:
        outcome: Any = None
        with closing(exchange):
            async with aclosing(_AsyncSteps(self)) as steps:
                while True:
                    try:
                        step = exchange.send(outcome)
                    except StopIteration as end:
                        answer: Answer = end.value
                        return answer
                    outcome = await steps.perform(step)

    async def _iterate(self, exchange: Giving[Answer]) -> AsyncGenerator[Answer, None]:
        outcome: Any = None
        with closing(exchange):
            async with aclosing(_AsyncSteps(self)) as steps:
                while True:
                    try:
                        step = exchange.send(outcome)
                    except StopIteration:
                        return
                    outcome = None
                    if isinstance(step, Give):
                        yield step.value
                    else:
                        outcome = await steps.perform(step)


class _AsyncSteps:
    """Performs the steps of one exchange, and holds the stream that it has open."""

    def __init__(self, client: AsyncClient) -> None:
        self._http, self._protocol, self._on_wait = client._http, client._protocol, client._on_wait
        self._stream: httpx2.Response | None = None
        self._parts: AsyncIterator[httpx2.ServerSentEvent | bytes] | None = None

    async def aclose(self) -> None:
        if self._stream is not None:
            await self._stream.aclose()

    async def perform(self, step: IoStep) -> object:
        """Return the outcome of a step; a failure of the connection is an outcome too."""
        if isinstance(step, Pause):
            if step.wait is not None:
                self._on_wait(step.wait)
            await asyncio.sleep(step.seconds)
            return None
        try:
            match step:
                case Send(call):
                    return await self._send(call)
                case Listen(call):
                    return await self._listen(call, step.is_events)
                case Hear():
                    return None if self._parts is None else await anext(self._parts, None)
        except httpx2.HTTPError as error:
            return error

    async def _send(self, call: Call[Any]) -> HttpReply:
        content = _async_content(call.content() if callable(call.content) else call.content)
        response = await self._http.request(**request_arguments(call, self._protocol), content=content)
        return HttpReply(response.status_code, response.headers, response.content)

    async def _listen(self, call: Call[Any], is_events: bool) -> HttpReply | None:
        await self.aclose()
        request = self._http.build_request(**request_arguments(call, self._protocol))
        self._stream = await self._http.send(request, stream=True)
        if self._stream.status_code != 200:
            return HttpReply(self._stream.status_code, self._stream.headers, await self._stream.aread())
        self._parts = aiter(httpx2.EventSource(self._stream)) if is_events else self._stream.aiter_bytes()
        return None


def _async_content(
    content: bytes | Iterable[bytes] | AsyncIterable[bytes] | None,
) -> bytes | AsyncIterable[bytes] | None:
    if content is None or isinstance(content, bytes | AsyncIterable):
        return content

    async def pieces() -> AsyncIterator[bytes]:
        for piece in content:
            yield piece

    return pieces()
