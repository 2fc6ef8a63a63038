"""``AsyncClient`` behind blocking calls, so that one suite holds both clients to the same behaviour."""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Generator
from typing import Any, cast

from corelane.client import AsyncClient


class Awaited:
    """An AsyncClient whose every method is awaited at once, on an event loop of its own."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._runner = asyncio.Runner()
        self._client = AsyncClient(*args, **kwargs)

    def __enter__(self) -> "Awaited":
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._runner.run(self._client.close())
        self._runner.close()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._client, name)
        if not callable(found):
            return found

        def call(*args: Any, **kwargs: Any) -> Any:
            result = found(*args, **kwargs)
            if inspect.isasyncgen(result):
                return self._each(cast(AsyncGenerator[Any, None], result))
            return self._runner.run(result)

        return call

    def _each(self, results: AsyncGenerator[Any, None]) -> Generator[Any, None, None]:
        try:
            while True:
                try:
                    yield self._runner.run(anext(results))
                except StopAsyncIteration:
                    return
        finally:
            self._runner.run(results.aclose())
