"""Simulated cores: the worker's own drain, heartbeat, dispatch and runner, with a model that only sleeps.

Many cores to a process, in threads, on a Redis of their own; Celery is left out, as cores linger for ever.
``scaling.py`` is built on it.
"""

import asyncio
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import redis

from corelane.artifacts.manifest import model_name
from corelane.broker.app import bell_envelope, make_celery
from corelane.cli.ports import free_port
from corelane.cli.redis_server import find_server, server_argv
from corelane.domain.dispatch import CHARS_PER_TOKEN, Core
from corelane.domain.jobs import Item, JobHead
from corelane.engine.backends.protocol import Batch, Logits
from corelane.engine.buckets import DEFAULT_BUCKETS, Bucket, parse_buckets
from corelane.engine.null import NO_LOGITS, NullRunner, NullTask
from corelane.engine.runner import Runner, ServedModel
from corelane.engine.sharing import Charge
from corelane.engine.task import Query
from corelane.engine.text.tokenize import cut_windows
from corelane.engine.windows import Window
from corelane.plugin import installed
from corelane.settings import Settings
from corelane.store.fleet import Announcer, Fleet
from corelane.store.jobs.store import JobStore
from corelane.store.jobs.submission import Submission
from corelane.store.link.link import AsyncLink
from corelane.store.plans import Plans
from corelane.submitting.submitter import Submitter
from workers.core.drain import drain
from workers.core.process import CoreProcess
from workers.models.runners import Loader

#: Longer than any run: a drain neither ends nor is its core taken for dead when the machine is busy, in seconds.
RUN_S = 3600

#: Threads of one process change this often: with Python's 5 ms a core would wait for its neighbours, in seconds.
SWITCH_S = 0.0005

#: The default ladder of the CPU target.
LADDER = parse_buckets(DEFAULT_BUCKETS)

#: Tokens of a question and of the separators in each window of a simulated item.
QUESTION_TOKENS, SPECIALS, OVERLAP = 12, 3, 128

Found = TypeVar("Found")


@contextmanager
def own_redis() -> Iterator[str]:
    """Start a Redis with the product's settings and yield its URL."""
    port = free_port("127.0.0.1", 0)
    with tempfile.TemporaryDirectory() as folder:
        server = subprocess.Popen(server_argv(find_server(), Path(folder), port), stdout=subprocess.DEVNULL)
        try:
            url = f"redis://127.0.0.1:{port}/0"
            with redis.Redis.from_url(url) as raw:
                for _ in range(200):
                    try:
                        raw.ping()
                        break
                    except redis.ConnectionError:
                        time.sleep(0.05)
            yield url
        finally:
            server.terminate()
            server.wait(10)


@dataclass(frozen=True, slots=True)
class Cost:
    """How long a batch takes: a fixed time, and one for each token of its rows, padding included."""

    batch_s: float = 0.0
    token_s: float = 0.0

    def of(self, rows: int, length: int) -> float:
        """Seconds a batch takes."""
        return self.batch_s + rows * length * self.token_s


def simulated_item(estimated: int, true: int) -> Item:
    """Return an item that is estimated at so many tokens; a simulated core finds that it has ``true``."""
    question = f"{true} tokens?"
    return Item(question=question, context="x" * max(1, CHARS_PER_TOKEN * (estimated - SPECIALS) - len(question)))


def windows_of(true: int) -> list[Window]:
    """Return the windows of an item of so many tokens."""
    if true <= LADDER[-1].length:
        return [Window(0, true, true)]
    return list(cut_windows(QUESTION_TOKENS, true, max_length=LADDER[-1].length, specials=SPECIALS, doc_stride=OVERLAP))


@dataclass(frozen=True, slots=True)
class SimulatedItem:
    """A query and the windows that it says it has."""

    query: Query
    windows: Sequence[Window]


class SimulatedTask(NullTask):
    """Items of as many tokens as their question says, with empty answers."""

    def tokenize(self, queries: Sequence[tuple[Hashable, Query]]) -> list[Any]:
        """Return the items."""
        return [
            (key, SimulatedItem(query, windows_of(int(query.question.partition(" ")[0])))) for key, query in queries
        ]

    def fill(self, bucket: Bucket, rows: Sequence[tuple[Any, Window]], height: int) -> Batch:  # noqa: ARG002
        """Return a batch of as many rows."""
        shape = np.broadcast_to(np.int64(0), (len(rows), bucket.length))
        return Batch(bucket, shape, shape, shape)


class PacedRunner(Runner):
    """The real runner over sleep: a batch takes its cost."""

    def __init__(self, version: str, cost: Cost) -> None:
        def run(batch: Batch) -> Logits:
            time.sleep(cost.of(batch.rows, batch.bucket.length))
            return NO_LOGITS

        name = version.partition("@")[0]
        served = ServedModel(name, version, {"name": name, "target": "simulated"}, LADDER)
        super().__init__(SimulatedTask(needs_batches=True), served, run)

    def charges(self) -> list[Charge]:
        """Charges stay as they were estimated, so that runs compare."""
        return []


class GivenRunners(Loader):
    """Loads what it was given."""

    def __init__(self, runners: Mapping[str, Runner]) -> None:
        super().__init__("null", Path())
        self._runners = dict(runners)

    def resolve(self, name: str, known: str | None = None) -> str:  # noqa: ARG002  # what is given is known
        """Return the version whose name the settings hold."""
        return next(version for version in self._runners if model_name(version) == name)

    def load(self, version: str, manifest: str = "", *, renew: bool = False) -> Runner:  # noqa: ARG002  # it has none
        """Return the runner given."""
        return self._runners[version]


class SimulatedCore(CoreProcess):
    """A worker's core whose runners are given, not loaded."""

    def __init__(self, settings: Settings, core: Core, bell: str, runners: Mapping[str, Runner]) -> None:
        first, *others = runners
        settings = settings.model_copy(update={"model": first, "models": tuple(others)})
        super().__init__(
            settings, core, bell, loader=GivenRunners(runners), observers=[plugin.observers for plugin in installed()]
        )

    def begin_life(self) -> None:
        """Announce, take back, ring and beat, as a real one does; until all it was given is taken up."""
        self.start(lambda: False)
        while len(self.versions) < len(self.settings.models) + 1:
            self.take_up(lambda _: False)
            time.sleep(0.01)

    def reading(self) -> "CoreReading":
        """Return its work until now."""
        since = self.vitals.running_since
        busy_s = self.vitals.busy_s + (time.monotonic() - since if since is not None else 0.0)
        return CoreReading(
            busy_s,
            sum(runner.work.batches for runner in self.runners.values()),
            sum(runner.work.items for runner in self.runners.values()),
        )


@dataclass(frozen=True, slots=True)
class CoreReading:
    """Time in batches so far, batches and items."""

    busy_s: float
    batches: int
    items: int


@dataclass(frozen=True, slots=True)
class Plan:
    """A fleet: the versions of each core by its number, and what batches cost (None: the null engine).

    It has at most so many ``processes``, one for each CPU if unset.
    """

    redis_url: str
    cores: Mapping[int, tuple[str, ...]]
    cost: Cost | None = None
    processes: int | None = None

    @property
    def settings(self) -> Settings:
        """The product's defaults, but for bounds that a benchmark must not meet."""
        return Settings(
            redis_url=self.redis_url, core_host="sim", linger_s=RUN_S, drain_s=RUN_S, lease_s=60,
            max_outstanding_tokens=10**9, max_owner_tokens=10**9,
        )  # fmt: skip

    def runners(self, core: int) -> dict[str, Runner]:
        """Return the versions of a core."""
        if self.cost is None:
            return {NullRunner.version: NullRunner()}
        return {version: PacedRunner(version, self.cost) for version in self.cores[core]}


class Squad:
    """The processes of a fleet: announced when it is made, at work from ``go``."""

    def __init__(self, plan: Plan) -> None:
        count = min(len(plan.cores), plan.processes or os.cpu_count() or 1)
        context = multiprocessing.get_context("spawn")
        self._pipes: list[Connection] = []
        self._processes = []
        for number in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_serve, args=(plan, sorted(plan.cores)[number::count], theirs), daemon=True
            )
            process.start()
            self._pipes.append(ours)
            self._processes.append(process)
        for pipe in self._pipes:
            pipe.recv()

    def go(self) -> None:
        """Let every core serve its lanes."""
        for pipe in self._pipes:
            pipe.send("go")

    def readings(self) -> dict[int, CoreReading]:
        """Return the work of each core."""
        found: dict[int, CoreReading] = {}
        for pipe in self._pipes:
            pipe.send("read")
            found |= pipe.recv()
        return found

    def stop(self) -> None:
        """End the processes, after the batches in hand."""
        for pipe in self._pipes:
            pipe.send("stop")
        for process in self._processes:
            process.join(20)
            process.kill()


@contextmanager
def running_squad(plan: Plan) -> Iterator[Squad]:
    """Announce a squad that is not yet at work."""
    squad = Squad(plan)
    try:
        yield squad
    finally:
        squad.stop()


def _serve(plan: Plan, numbers: Sequence[int], pipe: Connection) -> None:
    """One process of simulated cores: announce, wait for the word, serve, tell."""
    sys.setswitchinterval(SWITCH_S)
    bell = bell_envelope(make_celery(plan.settings))
    cores = {
        number: SimulatedCore(plan.settings, Core("sim", number), bell, plan.runners(number)) for number in numbers
    }
    for core in cores.values():
        core.begin_life()
    pipe.send("ready")
    stop = threading.Event()
    threads = [threading.Thread(target=drain, args=(core, stop.is_set), daemon=True) for core in cores.values()]
    while (word := pipe.recv()) != "stop":
        if word == "go":
            for thread in threads:
                thread.start()
        else:
            pipe.send({number: core.reading() for number, core in cores.items()})
    stop.set()
    for thread in threads:
        if thread.ident is not None:
            thread.join()
    for core in cores.values():
        core.close()


def with_submitter(settings: Settings, action: Callable[[Submitter], Awaitable[Found]]) -> Found:
    """Run ``action`` with a submitter, as the API has one."""

    async def run() -> Found:
        link = AsyncLink(settings.redis_url)
        try:
            store = JobStore(link, settings, bell_envelope(make_celery(settings)))
            return await action(Submitter(store, Fleet(link), settings))
        finally:
            await link.close()

    return asyncio.run(run())


async def submit(submitter: Submitter, version: str, items: Sequence[Item], owner: str) -> str:
    """Admit and submit one job, as the API does; return its id."""
    return (await submitter.submit(Submission(JobHead(model=version), owner, items))).record.id


def announce(settings: Settings, core: str, version: str) -> None:
    """Announce a core that never claims: work for it waits."""
    Plans(settings, core, "").announce(version, {}, [])
    Announcer(settings, core).beat({"state": "idle"}, [version], [])


def open_jobs(raw: redis.Redis) -> int:
    """Jobs that are not final."""
    return sum(int(raw.scard(f"cl:open:{priority}")) for priority in range(3))


def wait_until_final(raw: redis.Redis, timeout_s: float) -> None:
    """Wait for every job; TimeoutError if that takes too long."""
    deadline = time.monotonic() + timeout_s
    while open_jobs(raw):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{open_jobs(raw)} jobs are not final after {timeout_s} s")
        time.sleep(0.01)
