"""The receiver of a chaos run's webhooks: it fails one request in ten, and remembers all of them.

An event counts as delivered once a request for it was answered with 200. What is delivered twice is the same: same id,
same bytes.
"""

import random
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import orjson

from tests.tools.receivers import Receiver, receiver

#: Share of requests that are answered with 500.
FAILED_SHARE = 0.1

#: Posts are counted by stretches of this length, in seconds.
STRETCH_S = 10


@dataclass
class Hooks:
    """What came in: the posts themselves in ``found``."""

    found: Receiver
    began: float = field(default_factory=time.monotonic)
    #: Whether each request is refused for now.
    is_down: bool = False
    #: When requests came, in order; and by their number in ``found.posts`` what they were answered.
    at: list[float] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return self.found.url

    def over_time(self) -> list[int]:
        """How many came in each stretch since the beginning."""
        stretches = [0] * (1 + int((time.monotonic() - self.began) / STRETCH_S))
        for at in list(self.at):
            stretches[int((at - self.began) / STRETCH_S)] += 1
        return stretches

    def longest_silence(self, begin: float, end: float) -> float:
        """Return the longest time without a request between two moments."""
        times = [begin, *(at for at in list(self.at) if begin < at < end), end]
        return max(after - before for before, after in pairwise(times))

    def events(self) -> dict[str, "Event"]:
        """Every event that came, by its id."""
        events: dict[str, Event] = defaultdict(Event)
        for number, post in enumerate(list(self.found.posts)):
            event = events[post.headers["webhook-id"]]
            event.bodies.add(post.body)
            event.posts += 1
            event.answered += self.statuses.get(number) == 200
        return dict(events)


@dataclass
class Event:
    """One event as it came."""

    bodies: set[bytes] = field(default_factory=set)
    posts: int = 0
    #: Requests that were answered with 200.
    answered: int = 0

    @property
    def told(self) -> tuple[str, str, str]:
        """The job, the kind of event, and the job's status."""
        body = orjson.loads(min(self.bodies))
        return body["data"]["id"], body["type"], body["data"]["status"]


@contextmanager
def hooks(seed: int, host: str = "127.0.0.1") -> Iterator[Hooks]:
    """Start a receiver that refuses some requests by a seeded choice."""
    rng = random.Random(f"{seed}/hooks")
    kept: list[Hooks] = []

    def answer(number: int) -> tuple[int, dict[str, str], bytes]:
        status = 500 if kept[0].is_down or rng.random() < FAILED_SHARE else 200
        kept[0].at.append(time.monotonic())
        kept[0].statuses[number] = status
        return status, {}, b""

    with receiver(answer, host) as found:
        kept.append(Hooks(found))
        yield kept[0]
