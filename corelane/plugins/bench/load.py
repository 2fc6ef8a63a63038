"""The load: callers in a closed loop, requests at a rate, or all items as one job; and the outcome of each request.

In a closed loop a caller sends its next request once the last is answered, and a latency counts from the sending. At a
rate requests are sent when they are due, even if earlier ones wait, as by callers who know nothing of each other.
There a latency counts from when a request was due, so a service that falls behind shows it. Times are in seconds from
the start of the load.
"""

import asyncio
import itertools
import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from corelane.client import AsyncClient
from corelane.domain.jobs import Result
from corelane.errors import CorelaneError, ServiceError
from corelane.plugins.bench.items import Given, ItemSet

#: A request without a result is given up after this: longer than a busy service keeps a caller waiting, in seconds.
TIMEOUT_S = 120.0

#: Pause of a caller whose request failed, so that a service which refuses all is not flooded, in seconds.
PAUSE_S = 0.1

#: How many callers share a client, which has as many connections.
SHARING = 100

#: Most requests in flight at a rate; more wait for a place, and their latency counts that.
MOST_IN_FLIGHT = 1000


@dataclass(frozen=True, slots=True)
class Request:
    """One request: when it was due and when it ended; its items that were answered, and the F1 of those with one.

    ``failures`` has the code of each item that failed, or one code if the whole request did.
    """

    due_s: float
    ended_s: float
    answered: int = 0
    f1: Sequence[float] = ()
    failures: Sequence[str] = ()
    is_failed: bool = False


@dataclass(slots=True)
class Run:
    """The outcome of a load: its requests, its length in seconds, and the CPU seconds that sending them took."""

    requests: list[Request] = field(default_factory=list)
    seconds: float = 0.0
    cpu_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Load:
    """How a load is sent: by a number of callers, at a rate, or as one job if neither is given; and when it ends."""

    callers: int | None = None
    rate: float | None = None
    seconds: float | None = None
    requests: int | None = None
    per_request: int = 1

    def is_over(self, sent: int, at_s: float) -> bool:
        """Return whether the load ends, after ``sent`` requests, at ``at_s`` seconds from its start."""
        return sent >= (self.requests or math.inf) or at_s >= (self.seconds or math.inf)

    def __str__(self) -> str:
        """Return the load in words."""
        what = f"{self.rate:g} requests/s" if self.rate else "one job"
        if self.callers:
            what = f"{self.callers:,} caller{'s' if self.callers > 1 else ''}"
        return what + (f", {self.per_request:,} items a request" if self.per_request > 1 else "")


class Sender:
    """Sends requests to one service, and notes their outcomes."""

    def __init__(self, clients: Sequence[AsyncClient], model: str, items: ItemSet) -> None:
        self._clients, self._model, self._items = clients, model, items
        self._began_s, self.requests = 0.0, list[Request]()

    @property
    def at_s(self) -> float:
        """The time since the start of the load."""
        return time.monotonic() - self._began_s

    async def warm_up(self, items: int) -> None:
        """Send some items, one after the other, so that connections are open; raise the first failure."""
        for number in range(items):
            await self._clients[0].predict(self._model, self._items.given[number].item, options=self._items.options)

    async def run(self, load: Load) -> Run:
        """Send the load, wait until all requests have ended, and return their outcomes."""
        cpu_s, self._began_s = time.process_time(), time.monotonic()
        if load.callers:
            await self._closed_loop(load, load.callers)
        elif load.rate:
            await self._at_rate(load, load.rate)
        else:
            await self._one_job()
        last_s = max((each.ended_s for each in self.requests), default=math.inf)
        is_timed = load.seconds is not None and load.requests is None
        seconds = min(load.seconds or math.inf, math.inf if is_timed else last_s)
        return Run(self.requests, seconds, time.process_time() - cpu_s)

    async def _closed_loop(self, load: Load, callers: int) -> None:
        numbers = itertools.count()

        async def call(client: AsyncClient) -> None:
            while not load.is_over(number := next(numbers), self.at_s):
                if (await self._ask(client, number, load.per_request, self.at_s)).is_failed:
                    await asyncio.sleep(PAUSE_S)

        await asyncio.gather(*(call(self._clients[each // SHARING]) for each in range(callers)))

    async def _at_rate(self, load: Load, rate: float) -> None:
        chance, due_s, places = random.Random(0), 0.0, asyncio.Semaphore(MOST_IN_FLIGHT)

        async def call(number: int, due_s: float) -> None:
            async with places:
                await self._ask(self._clients[number % len(self._clients)], number, load.per_request, due_s)

        async with asyncio.TaskGroup() as group:
            for number in itertools.count():
                due_s += chance.expovariate(rate)
                if load.is_over(number, due_s):
                    return
                await asyncio.sleep(due_s - self.at_s)
                group.create_task(call(number, due_s))

    async def _one_job(self) -> None:
        client, items = self._clients[0], [each.item for each in self._items.given]
        job = await client.submit(items, model=self._model, options=self._items.options)
        await client.wait(job.id)
        ended_s = self.at_s
        results = [each async for each in client.iter_results(job.id)]
        self._note(0.0, ended_s, self._items.given, results)

    async def _ask(self, client: AsyncClient, number: int, count: int, due_s: float) -> Request:
        given = self._items.pick(number, count)
        items = [each.item for each in given]
        try:
            async with asyncio.timeout(TIMEOUT_S):
                results = await client.predict(self._model, items, options=self._items.options)
        except TimeoutError:
            code = "timeout"
        except ServiceError as error:
            code = error.problem_code
        except CorelaneError as error:
            code = error.code
        else:
            return self._note(due_s, self.at_s, given, results)
        self.requests.append(Request(due_s, self.at_s, failures=[code], is_failed=True))
        return self.requests[-1]

    def _note(self, due_s: float, ended_s: float, given: Sequence[Given], results: Sequence[Result]) -> Request:
        pairs = list(zip(given, results, strict=True))
        failures = [result.error.code for _, result in pairs if result.error is not None]
        scored = [(each.known, result) for each, result in pairs if each.known and result.error is None]
        f1 = [self._items.task_items.f1(known, result) for known, result in scored]
        self.requests.append(Request(due_s, ended_s, len(pairs) - len(failures), f1, failures))
        return self.requests[-1]
