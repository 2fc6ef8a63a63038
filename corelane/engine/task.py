"""The interface of a task's engine: it turns an item into its result, around a model's forward pass.

Each task has one in its folder (``corelane.tasks``); the null engine is one file (``null``). The default methods are
for a task without long items: it reads texts at once.
"""

import math
from collections.abc import Callable, Collection, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from corelane.domain.dispatch import PUBLIC, Core
from corelane.domain.jobs import JobStatus, Priority, TaskOptions
from corelane.engine.backends.protocol import Logits, WindowBatch
from corelane.engine.buckets import Bucket
from corelane.errors import CorelaneError
from corelane.tasks.registry import task_named

#: An item's result in stored form, without its index and id.
Result = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Query:
    """One item, as the engine sees it. Owners share batches, and so do the jobs of an owner.

    Of an owner's items those with the lowest ``priority`` number are answered first.
    """

    #: What is read with the text in one row, a label for instance; None if the text is alone.
    beside: Any
    text: str
    options: Any = field(default_factory=TaskOptions)
    owner: str = PUBLIC
    priority: int = Priority.NORMAL.rank
    job: str = ""
    #: Its index in its job.
    index: int = 0
    #: The share of its owner.
    share: float = 1.0

    @property
    def passage(self) -> tuple[str, str]:
        """Return the owner and the text, by which tokens are cached: one owner's text is not used for another owner."""
        return self.owner, self.text


@dataclass(slots=True)
class RunnerWork:
    """Counters of a runner's work; they only grow."""

    items: int = 0
    batches: int = 0
    windows: int = 0
    tokens: int = 0
    padding: int = 0
    texts_hit: int = 0
    texts_read: int = 0


#: The core of a runner outside a worker.
NO_CORE = Core("local", 0)

#: Returns the bytes and the type of a file that an item names, from its URL or id, the item's owner, and the most bytes
#: by the model's own bound, if any. Raises a CorelaneError for which the item fails.
Fetch = Callable[[str, str, int | None], tuple[bytes, str]]


@dataclass(frozen=True, slots=True)
class RunnerLimits:
    """Limits of a runner: the time of one batch, tokens of cached texts, windows of a query, bytes of an output.

    ``handlers`` are the handlers that may be imported, ``handler_frames`` says whether callers see where one failed,
    and ``fetch`` gets files.
    """

    latency_target_s: float = math.inf
    cache_tokens: int = 0
    max_windows: float = math.inf
    max_output_bytes: float = math.inf
    handlers: tuple[str, ...] = ()
    handler_frames: bool = False
    core: Core = NO_CORE
    fetch: Fetch | None = None


UNLIMITED = RunnerLimits()


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of an item's text that is read as one row: its tokens ``start`` to ``end`` (exclusive).

    ``length`` counts all tokens of the row. ``part`` is the number of the text if an item has several texts, or of the
    reading if a text is read several times.
    """

    start: int
    end: int
    length: int
    part: int = 0


class Tokenized(Protocol):
    """A query in tokens, cut into windows; each window is one row of a batch."""

    @property
    def query(self) -> Query:
        """Return the query."""
        ...

    @property
    def windows(self) -> Sequence[Window]:
        """Return the query's windows, in order."""
        ...


Item = TypeVar("Item", bound=Tokenized)

#: A query's key, with the query in tokens, or with its result if it needs no batch.
Ready = tuple[Any, Item | Result]


class TaskEngine(Protocol[Item]):
    """The way from queries to results around the forward pass. Not thread-safe.

    A query that cannot be answered has a result that says why; no error is raised.
    """

    #: The counters of the engine's runner. The engine counts the texts.
    work: RunnerWork

    #: The queries whose text the last ``read_on`` read.
    read_for: Collection[Hashable] = ()

    def tokenize(self, queries: Sequence[tuple[Hashable, Query]]) -> list[Ready[Item]]:
        """Tokenize queries, each under its own key. Those with long texts are returned later, by ``read_on``."""
        ...

    def read_on(self) -> list[Ready[Item]]:
        """Tokenize one chunk of one long text; return the queries that this completes."""
        return []

    def unread_tokens(self, most_per_item: int) -> int:  # noqa: ARG002  # for tasks that read in chunks
        """Estimate the tokens that ``read_on`` still has to read, counting at most ``most_per_item`` for an item."""
        return 0

    def forget(self, keys: Collection[Hashable] | None = None) -> None:  # noqa: ARG002
        """Stop reading for these queries, or for all; unknown keys are ignored."""
        return

    def row_key(self, item: Item, window: Window) -> Hashable:  # noqa: ARG002  # for tasks whose rows may be equal
        """Return a key for the content of a window's row. Of an item's rows with equal keys only the first is read."""
        return window

    def fill(self, bucket: Bucket, rows: Sequence[tuple[Item, Window]], height: int) -> WindowBatch:
        """Return the arrays of a batch of ``height`` rows; those beyond ``rows`` are padding."""
        ...

    def decode(self, logits: Logits, rows: Sequence[tuple[Item, Window]]) -> list[Any]:
        """Return the evidence in the logits of each row."""
        ...

    def compose(self, item: Item, decoded: Sequence[Any]) -> Result:
        """Return an item's result from the evidence of its windows, in any order."""
        ...


def failure(query: Query, error: CorelaneError) -> Result:
    """Return the result of a query that could not be answered."""
    return {
        "status": str(JobStatus.FAILED),
        **task_named(query.options.task).nothing,
        "windows": 0,
        "error": {"code": error.code, "detail": error.detail},
    }
