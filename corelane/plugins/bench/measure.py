"""One run of the bench: warm up, read how long the cores have worked, send the load, read the cores' work again."""

import asyncio
import re
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from corelane.client import AsyncClient
from corelane.client.transport import http_options
from corelane.client.wire import read_problem
from corelane.errors import CorelaneError, ServiceUnreachable
from corelane.metrics.definitions import CORE_S
from corelane.plugins.bench.figures import figures_of
from corelane.plugins.bench.items import ItemSet, make_items, read_items
from corelane.plugins.bench.load import MOST_IN_FLIGHT, SHARING, Load, Sender

#: Items that are sent alone before the load, so that connections are open and nothing is read for the first time.
WARM_UP = 8

#: How many items are made if no number is given: enough that few requests in flight are alike.
MADE = 1000

#: Wait until the work is counted, in seconds: a core counts it with its next heartbeat, each second.
COUNTED_S = 1.5

SAMPLE = re.compile(rf'^{CORE_S.name}{{core="([^"]*)"}} (\S+)$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Target:
    """The service that is measured: its address, the key to send, and the model that is asked."""

    url: str
    api_key: str | None
    model: str


@dataclass(frozen=True, slots=True)
class ItemSource:
    """The items to send: at most ``count`` items of a file, or ``count`` made items of about ``tokens`` tokens."""

    file: Path | None
    count: int | None
    tokens: int

    def read(self, task: str) -> ItemSet:
        """Return the items in the form of a task."""
        if self.file is not None:
            return read_items(task, self.file, self.count)
        return make_items(task, self.count or MADE, self.tokens)


async def measure(target: Target, load: Load, source: ItemSource, price_per_hour: float | None) -> dict[str, Any]:
    """Return the figures of a load on a service; raise CorelaneError if it cannot begin.

    ``cores`` has the share of the time that each core worked. It is empty if the service does not say, and
    ``cores_unknown`` says why.
    """
    async with AsyncExitStack() as stack:
        count = -(-(MOST_IN_FLIGHT if load.rate else load.callers or 1) // SHARING)
        made = [AsyncClient(target.url, target.api_key, patience_s=0) for _ in range(count)]
        clients = [await stack.enter_async_context(each) for each in made]
        model = await clients[0].get_model(target.model)
        items = source.read(model["task"])
        sender = Sender(clients, target.model, items)
        await sender.warm_up(min(WARM_UP, len(items.given)))
        before, unknown = await _counted(target)
        run = await sender.run(load)
        after, unknown = await _counted(target) if unknown is None else ({}, unknown)
    about = {"model": model["id"], "task": model["task"], "items_from": items.source, "load": str(load)}
    cores = busy_shares(before, after, run.seconds)
    return {**about, **figures_of(run, price_per_hour), "cores": cores, "cores_unknown": unknown}


async def _counted(target: Target) -> tuple[dict[str, float], str | None]:
    """Return the seconds that each core has worked so far, or why they are not known."""
    await asyncio.sleep(COUNTED_S)
    try:
        return await core_seconds(target.url, target.api_key), None
    except CorelaneError as error:
        return {}, error.detail


async def core_seconds(url: str, api_key: str | None) -> dict[str, float]:
    """Return the seconds that each core has worked so far, by its name; raise an error if the service refuses."""
    try:
        async with httpx2.AsyncClient(**http_options(url, api_key)) as http:
            reply = await http.get("/metrics")
    except httpx2.HTTPError as error:
        raise ServiceUnreachable(f"{url} does not give its metrics: {error or type(error).__name__}") from None
    if reply.status_code != 200:
        raise read_problem(reply.status_code, reply.content)
    return {core: float(seconds) for core, seconds in SAMPLE.findall(reply.text)}


def busy_shares(before: dict[str, float], after: dict[str, float], seconds: float) -> dict[str, float]:
    """Return the share of some seconds that each core worked; a core that was restarted counts from 0."""
    worked = {core: now - before.get(core, 0.0) if now >= before.get(core, 0.0) else now for core, now in after.items()}
    return {core: round(min(1.0, spent / seconds), 4) for core, spent in sorted(worked.items())}
