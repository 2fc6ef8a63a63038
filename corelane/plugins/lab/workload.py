"""The items of a run: from a file, or made to a stated distribution of lengths; and what the bench knows of their task.

Requests take items in a shuffled order, the same for the same seed. The results of the idle service are stored here, to
compare results under load with them. A task says what the bench cannot know in its own folder, in ``lab.py``.
"""

import gzip
import hashlib
import random
import zlib
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import orjson
from pydantic import ValidationError

from corelane.domain.jobs import DEFAULT_TASK
from corelane.errors import InvalidInput, SetupError
from corelane.plugins.lab.schema import Spread, WorkloadInfo
from corelane.plugins.lab.stats import spread
from corelane.tasks.registry import task_named
from corelane.tasks.task import Task

GZIP_MAGIC = b"\x1f\x8b"

#: The spread of no values.
NONE = Spread(count=0, mean=0, p50=0, p90=0, p95=0, p99=0, max=0)

#: A request of a trace chooses among this many items of about the wanted length.
NEIGHBOURS = 8

#: Makes a text around a sentence that it keeps; the second argument estimates the tokens of an item with a text.
MakeText = Callable[[str, Callable[[str], int]], str]


class BenchItem(NamedTuple):
    """An item: its fields on the wire, and the results that are right, if they are known."""

    fields: Mapping[str, Any]
    known: tuple[str, ...] = ()


class Given(NamedTuple):
    """A result for comparison: the place of its item in the request, and its output (``TaskBench.output``)."""

    place: int
    output: Any


class TaskBench:
    """What the bench knows of one task. As it stands it serves tasks whose items are one text."""

    #: The path that lone items are posted to, and that lines of a batch name; without one there are only jobs.
    path: str | None = None

    def __init__(self, task: Task) -> None:
        self.task = task

    def make(self, rng: random.Random, make_text: MakeText) -> BenchItem:  # noqa: ARG002  # for items with more
        """Make an item."""
        return BenchItem({"text": make_text("", lambda text: self.tokens({"text": text}))})

    def item(self, line: Mapping[str, Any]) -> BenchItem:
        """Return the item of a line of a file; raise KeyError or TypeError for another line."""
        return BenchItem({name: value for name, value in line.items() if name != "id"})

    def read(self, document: object) -> tuple[list[BenchItem], dict[str, Any]]:  # noqa: ARG002
        """Return the items of a file that has a layout of its own, and the options to send them with."""
        raise InvalidInput("it is no file of items: write one to a line, as JSON")

    def options(self, items: Sequence[BenchItem]) -> dict[str, Any]:  # noqa: ARG002
        """Return the options to send items with: long texts are read in windows, if the task has a choice."""
        return {"long": "mean"} if "long" in self.task.options.model_fields else {}

    def output(self, result: Mapping[str, Any]) -> Any:
        """Return what is compared of a result; numbers in it may differ a little (``results.alike``)."""
        return result.get(self.task.result.mark)

    def score(self, known: Sequence[str], output: Any) -> tuple[float, float]:
        """Return the exact match and the F1 of an output with the results that are right."""
        raise NotImplementedError

    def long_work(self, client: Any, target: Any, texts: Sequence[str], words: int) -> Any:  # noqa: ARG002
        """Return a ``BatchWork`` on long items, one after the other, each of about that many words of ``texts``."""
        raise InvalidInput(f"no long items are made for {self.task.name}")

    def parts(self, fields: Mapping[str, Any]) -> tuple[Any, str]:
        """Return what stands beside an item's text, and the text; raise InvalidInput for an item of another form."""
        try:
            beside, text, _ = self.task.parts(self.task.item.model_validate(fields))
        except ValidationError as error:
            raise InvalidInput(f"this is no item of {self.task.name}: {error.errors()[0]['msg']}") from None
        return beside, text or ""

    def tokens(self, fields: Mapping[str, Any], options: Mapping[str, Any] | None = None) -> int:
        """Estimate the tokens of an item, as the service charges them."""
        return self.task.tokens(*self.parts(fields), self.task.options.model_validate(options or {}))


@cache
def bench_of(name: str) -> TaskBench:
    """Return what the bench knows of a task; raise InvalidInput if there is no such task."""
    try:
        task = task_named(name)
    except ValueError as error:
        raise InvalidInput(str(error)) from None
    own = f"{type(task).__module__.rpartition('.')[0]}.lab"
    return (import_module(own).BENCH if find_spec(own) else TaskBench)(task)


@dataclass(slots=True)
class Workload:
    """Items to send, and the known facts about their results."""

    asked: list[BenchItem]
    source: str
    seed: int = 0
    task: str = DEFAULT_TASK
    options: dict[str, Any] = field(default_factory=dict)
    made_by_seed: bool = False
    #: The results of the idle service, by place.
    idle: dict[int, Given] = field(default_factory=dict)
    tokens: list[int] = field(default_factory=list)
    #: Whether results under load are scored against those that are right.
    is_scored: bool = True
    _order: list[int] = field(default_factory=list)
    _by_tokens: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.asked:
            raise InvalidInput(f"{self.source} has no items")
        self.tokens = [self.bench.tokens(each.fields, self.options) for each in self.asked]
        self._order = list(range(len(self.asked)))
        random.Random(self.seed).shuffle(self._order)
        self._by_tokens = sorted((tokens, place) for place, tokens in enumerate(self.tokens))

    @property
    def bench(self) -> TaskBench:
        """What is known of the items' task."""
        return bench_of(self.task)

    @property
    def has_known(self) -> bool:
        """Whether there are results to score against."""
        return any(each.known for each in self.asked)

    def parts(self) -> Iterator[tuple[str, str]]:
        """Yield what stands beside each item's text, if that is a text too, and the text."""
        for each in self.asked:
            beside, text = self.bench.parts(each.fields)
            yield beside if isinstance(beside, str) else "", text

    def pick(self, number: int, items: int = 1, tokens: int | None = None) -> list[int]:
        """Return the places of the items of a request; with ``tokens``, they have about that many in total."""
        if tokens is not None:
            return self._near(number, items, tokens)
        first = number * items
        return [self._order[(first + each) % len(self._order)] for each in range(items)]

    def distinct(self, requests: int, items: int) -> list[int]:
        """Return the places of the items in ``requests`` requests, each once."""
        return self._order[: requests * items]

    def describe(self) -> WorkloadInfo:
        """Return the description of the items for the report."""
        words = [(len(beside.split()), len(text.split())) for beside, text in self.parts()]
        return WorkloadInfo(
            source=self.source,
            hash=self._hash(),
            task=self.task,
            items=len(self.asked),
            words=sum(map(sum, words)),
            tokens=sum(self.tokens),
            text_words=spread(float(text) for _, text in words) or NONE,
            seed=self.seed if self.made_by_seed else None,
            has_known=self.has_known,
        )

    def _near(self, number: int, items: int, tokens: int) -> list[int]:
        at = bisect_left(self._by_tokens, (tokens // items, -1))
        first = max(0, min(at - NEIGHBOURS // 2, len(self._by_tokens) - NEIGHBOURS))
        near = self._by_tokens[first : first + NEIGHBOURS]
        return [near[(number * items + each) % len(near)][1] for each in range(items)]

    def _hash(self) -> str:
        digest = hashlib.sha256()
        for each in self.asked:
            digest.update(orjson.dumps([*each.fields.values(), each.known]))
        return digest.hexdigest()[:16]


def read_file(path: Path, limit: int | None = None, seed: int = 0, task: str = DEFAULT_TASK) -> Workload:
    """Read lines of JSON or a layout of the task's own, gzipped or not; raise InvalidInput or SetupError."""
    content, bench = _content(path), bench_of(task)
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError:
        document = {}
    if isinstance(document, dict) and "data" not in document:
        asked = _read_lines(path, content, bench)[:limit]
        return Workload(asked, path.name, seed, task, bench.options(asked))
    asked, options = bench.read(document)
    return Workload(asked[:limit], path.name, seed, task, options)


def _content(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if content.startswith(GZIP_MAGIC) else content
    except (OSError, EOFError, zlib.error) as error:
        raise SetupError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def _read_lines(path: Path, content: bytes, bench: TaskBench) -> list[BenchItem]:
    found = []
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip():
            continue
        try:
            item = bench.item(orjson.loads(line))
            bench.parts(item.fields)
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError, InvalidInput):
            example = orjson.dumps(dict(bench.task.example)).decode()
            raise InvalidInput(f"{path}, line {number}: a line of {bench.task.name} is {example}") from None
        found.append(item)
    return found
