"""Names and rules of dispatch: cores, queues, tasks, slices and refs. Pure; nothing here talks to Redis or Celery.

A *slice* is a run of neighbouring items of one job; a *ref* is the short text that stands for it, or for a single item
cut from it, in a lane: ``job:owner:priority:payload:first:count:tokens:attempt``. Items are named by their index in the
job: ``payload`` is the first of the stored slice, ``first`` the first of this stretch, and so the name of its result.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

#: The Celery task that rings a core, by the name it is sent under.
DRAIN_TASK = "corelane.drain"

#: Tasks of the version before, whose messages may still lie in the queues of the keeper and the sender of webhooks.
FORMER_TASKS = ("corelane.sweep", "corelane.feed", "corelane.deliver", "corelane.batch")

#: Who asks without an API key.
PUBLIC = "public"

#: Most items in a slice, whatever the settings say: stored results are looked for this far before an item.
MAX_SLICE_ITEMS = 128

#: Celery queues that belong to no core.
KEEPER_QUEUE = "keeper"
DELIVERY_QUEUE = "deliveries"

#: A job of one slice with at most this many estimated tokens is small: one batch can hold it.
SMALL_TOKENS = 1024


@dataclass(frozen=True, slots=True)
class Core:
    """One accelerator core or CPU slot, named ``host/index``."""

    host: str
    index: int

    @classmethod
    def parse(cls, name: str) -> "Core":
        """Read a core's name; raise ValueError if it is not one."""
        host, _, index = name.rpartition("/")
        if not host or not index.isdigit():
            raise ValueError(f"{name!r} is not the name of a core; names look like host/0")
        return cls(host, int(index))

    def __str__(self) -> str:
        return f"{self.host}/{self.index}"

    @property
    def queue(self) -> str:
        """The Celery queue only this core's worker reads."""
        return f"core.{self.host}.{self.index}"

    @property
    def node(self) -> str:
        """The Celery node name of its worker, as Flower shows it."""
        return f"core{self.index}@{self.host}"


@dataclass(frozen=True, slots=True)
class Ref:
    """A slice, or a single item cut from one, waiting in a lane."""

    job: str
    owner: str
    priority: int
    payload: int
    first: int
    count: int
    tokens: int
    attempt: int = 1

    @classmethod
    def decode(cls, text: str) -> "Ref":
        """Read a ref back from a lane; raise ValueError for any other text."""
        job, owner, *numbers = text.split(":")
        if len(numbers) != 6:
            raise ValueError("a ref has eight parts")
        return cls(job, owner, *map(int, numbers))

    def encode(self) -> str:
        """Return the text that stands in a lane."""
        place = f"{self.payload}:{self.first}:{self.count}:{self.tokens}:{self.attempt}"
        return f"{self.job}:{self.owner}:{self.priority}:{place}"

    @property
    def line(self) -> str:
        """Names its owner's larger jobs of its priority, in what a core says it has met."""
        return f"{self.owner}:{self.priority}"

    @property
    def lane(self) -> str:
        """The same for small jobs."""
        return f"{self.line}:small"

    @property
    def offset(self) -> int:
        """Its place in the stored slice."""
        return self.first - self.payload

    @property
    def key(self) -> str:
        """Names this stretch of work inside a claim."""
        return f"{self.job}:{self.first}"


def cut_slices(tokens: Sequence[int], max_items: int, max_tokens: int) -> Iterator[tuple[int, int, int]]:
    """Cut a job's items into slices, as (first, count, tokens): a bound on items, and on tokens unless alone."""
    first = total = 0
    for index, cost in enumerate(tokens):
        if index > first and (index - first >= max_items or total + cost > max_tokens):
            yield first, index - first, total
            first, total = index, 0
        total += cost
    if tokens:
        yield first, len(tokens) - first, total


def return_refs(ref: Ref) -> list[Ref]:
    """Cut a lapsed stretch into single items for the lanes, so that a poison item fails alone."""
    share = max(1, ref.tokens // ref.count)
    return [replace(ref, first=ref.first + i, count=1, tokens=share, attempt=ref.attempt + 1) for i in range(ref.count)]
