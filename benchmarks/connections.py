"""HTTP connections of the benchmarks, and work that is done on several of them at once."""

import http.client
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import orjson


class Connection:
    """One keep-alive connection."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=120)

    def call(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Any:
        """Return the answer's JSON; raise RuntimeError for a problem."""
        sent = {
            "Content-Type": "application/json",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        self._connection.request(method, path, body, sent)
        response = self._connection.getresponse()
        content = response.read()
        if response.status >= 400:
            raise RuntimeError(content.decode())
        return orjson.loads(content)


def at_once(work: Callable[[Connection], object], url: str, connections: int) -> None:
    """Do the same on each of several connections, in threads; raise the first failure."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work(Connection(url))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
