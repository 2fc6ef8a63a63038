"""What is watched while a chaos run goes on: events as they appear, writes of results, and how long recovery takes.

All of it looks at Redis itself, past the proxies, and goes on by itself after Redis was away.
"""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import orjson
import redis

from corelane.domain.dispatch import Ref

#: Pause after Redis was not there, in seconds.
AWAY_S = 0.05

#: How often those that wait for recovery look, in seconds.
LOOK_S = 0.05

FINAL = {"succeeded", "failed", "canceled", "expired"}


@dataclass
class Recovery:
    """Work that a killed process held: items by job, until all are answered."""

    what: str
    began: float
    held: dict[str, set[int]]
    seconds: float | None = None


@dataclass
class Sight:
    """What was seen."""

    #: Job → final statuses its events told of.
    events: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    #: Job → times a field of its results was written; a lower bound, as writes are not told while nobody listens.
    writes: Counter[str] = field(default_factory=Counter)
    recoveries: list[Recovery] = field(default_factory=list)


class Connectable(Protocol):
    """A Redis to look at."""

    def client(self) -> Any:
        """Return a plain client that repeats nothing."""


class Watch:
    """Threads that watch, inside a ``with``."""

    def __init__(self, server: "Connectable") -> None:
        self.sight = Sight()
        self._server = server
        self._over = threading.Event()
        self._failures: list[BaseException] = []
        self._last_event = "0"
        jobs = (self._read_events, self._read_writes, self._follow_recoveries)
        self._threads = [threading.Thread(target=self._forever, args=(job,), name=job.__name__) for job in jobs]

    def __enter__(self) -> "Watch":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        if self._failures:
            raise self._failures[0]

    def expect(self, what: str, held: dict[str, set[int]]) -> None:
        """From now on measure how long it takes until these items are answered."""
        if held:
            self.sight.recoveries.append(Recovery(what, time.monotonic(), held))

    def _forever(self, job: Callable[[Any], None]) -> None:
        try:
            while not self._over.is_set():
                try:
                    with self._server.client() as raw:
                        job(raw)
                except redis.RedisError:
                    self._over.wait(AWAY_S)
        except BaseException as error:
            self._failures.append(error)

    def _read_events(self, raw: Any) -> None:
        while not self._over.is_set():
            for _, entries in raw.xread({"cl:events": self._last_event}, count=1000, block=500) or ():
                for entry, fields in entries:
                    self._last_event = entry
                    if fields.get("status") in FINAL:
                        self.sight.events[fields["job"]].append(fields["status"])

    def _read_writes(self, raw: Any) -> None:
        raw.ping()  # a server that still reads its file would tell of all writes in it again
        with raw.pubsub() as channel:
            channel.psubscribe("__keyspace@0__:cl:out:*")
            while not self._over.is_set():
                message = channel.get_message(ignore_subscribe_messages=True, timeout=0.5)
                if message is not None and message["data"] == "hset":
                    self.sight.writes[job_of(message["channel"])] += 1

    def _follow_recoveries(self, raw: Any) -> None:
        while not self._over.wait(LOOK_S):
            for recovery in [each for each in self.sight.recoveries if each.seconds is None]:
                if all(is_answered(raw, job, items) for job, items in recovery.held.items()):
                    recovery.seconds = time.monotonic() - recovery.began


def job_of(key: str) -> str:
    """Return the job in the name of one of its keys."""
    return key.partition("{")[2].partition("}")[0]


def held_by(raw: Any, core: str) -> dict[str, set[int]]:
    """Return the items under a core's leases, by job."""
    held: dict[str, set[int]] = defaultdict(set)
    for lease in raw.zrange("cl:leases", 0, -1):
        if lease.rpartition("#")[0] == core:
            for text in raw.hvals(f"cl:claim:{lease}"):
                ref = Ref.decode(text)
                held[ref.job].update(range(ref.first, ref.first + ref.count))
    return dict(held)


def is_answered(raw: Any, job: str, items: set[int]) -> bool:
    """Whether nothing of ``items`` is still to be answered."""
    status = raw.hget(f"cl:job:{{{job}}}", "status")
    return status is None or status in FINAL or items <= set(stored_indexes(raw, job))


def stored_indexes(raw: Any, job: str) -> list[int]:
    """Return the index of every stored result of a job; one that is stored twice is there twice."""
    blobs = raw.hvals(f"cl:out:{{{job}}}")
    return [result["index"] for blob in blobs for result in orjson.loads(blob)]
