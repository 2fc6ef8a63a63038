"""The items that are sent, from lines of a file or made; and what each task must say about its items.

A task whose items are more than one text defines ``ITEMS``, a class, in ``bench.py`` of its folder.
"""

import gzip
import random
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from corelane.domain.jobs import Result
from corelane.errors import InvalidInput, SetupError
from corelane.tasks.registry import task_named
from corelane.tasks.task import Task

GZIP_MAGIC = b"\x1f\x8b"

#: Tokens that are left free in a made item: for special ones, and for what stands beside the text.
FREE_TOKENS = 16

#: Phrases for made sentences. In the vocabulary of BERT each word of them is one token, and so is the full stop.
PHRASES = (
    ("The harbour", "A gardener", "The old railway", "Every winter the town", "The museum", "A young surveyor"),
    ("kept", "repaired", "measured", "painted", "described", "sold", "visited", "carried"),
    ("the northern gate", "three small boats", "a map of the valley", "the market hall", "its oldest letters"),
    ("before the first snow", "with the help of neighbours", "as the newspaper reported", "along the river"),
)


class Given(NamedTuple):
    """An item, as its fields on the wire, and the outputs that are right, if they are known."""

    item: Mapping[str, Any]
    known: tuple[str, ...] = ()


class TaskItems:
    """The items of one task. This base class serves tasks whose items are one text."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def make(self, rng: random.Random, tokens: int) -> Given:
        """Make an item with a text of about ``tokens`` tokens."""
        return Given({**self.task.example, "text": prose(rng, tokens)})

    def of_line(self, line: Mapping[str, Any]) -> Given:
        """Return the item of a line; raise TypeError or ValueError if the line has another form."""
        self.task.item.model_validate(line)
        return Given({name: value for name, value in line.items() if name != "id"})

    def of_document(self, document: Mapping[str, Any]) -> list[Given] | None:  # noqa: ARG002  # for tasks with one
        """Return the items of a file that is one JSON object, or None if the task has no such layout."""
        return None

    def options(self, given: Sequence[Given]) -> dict[str, Any]:  # noqa: ARG002  # for tasks that need them
        """Return the options to send with the items: if the task has a choice, long texts are read in windows."""
        return {"long": "mean"} if "long" in self.task.options.model_fields else {}

    def f1(self, known: Sequence[str], result: Result) -> float:
        """Return the F1 of a result, from 0 to 1, where right outputs are known."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class ItemSet:
    """The items of one run, with the options to send them with."""

    task_items: TaskItems
    given: Sequence[Given]
    options: Mapping[str, Any]
    source: str

    def pick(self, number: int, count: int) -> list[Given]:
        """Return the items of a request: the next ``count`` of all, from the beginning again after the last."""
        return [self.given[(number * count + each) % len(self.given)] for each in range(count)]


def items_of(task: str) -> TaskItems:
    """Return what is known of the items of a task; raise InvalidInput if there is no such task."""
    try:
        found = task_named(task)
    except ValueError as error:
        raise InvalidInput(str(error)) from None
    own = f"{type(found).__module__.rpartition('.')[0]}.bench"
    made: TaskItems = (import_module(own).ITEMS if find_spec(own) else TaskItems)(found)
    return made


def make_items(task: str, count: int, tokens: int) -> ItemSet:
    """Make items of about ``tokens`` tokens each; they are the same each time."""
    items, rng = items_of(task), random.Random(0)
    given = [items.make(rng, max(1, tokens - FREE_TOKENS)) for _ in range(count)]
    return ItemSet(items, given, items.options(given), f"{count:,} made items of {tokens:,} tokens")


def read_items(task: str, path: Path, count: int | None = None) -> ItemSet:
    """Read the first ``count`` items of a file, gzipped or not: lines of JSON, or a layout that the task knows."""
    items, content = items_of(task), read(path)
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError:
        document = None
    given = items.of_document(document) if isinstance(document, dict) else None
    given = ([*read_lines(items, path, content)] if given is None else given)[:count]
    if not given:
        raise InvalidInput(f"{path} has no items: write one to a line, as {example(items.task)}")
    return ItemSet(items, given, items.options(given), f"{len(given):,} items of {path.name}")


def read(path: Path) -> bytes:
    """Return the content of a file, gzipped or not; raise SetupError if it cannot be read."""
    try:
        content = path.read_bytes()
        return gzip.decompress(content) if content.startswith(GZIP_MAGIC) else content
    except (OSError, EOFError, zlib.error) as error:
        raise SetupError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def read_lines(items: TaskItems, path: Path, content: bytes) -> Iterator[Given]:
    """Yield the items of lines of JSON; raise InvalidInput that names a line of another form."""
    for number, line in enumerate(content.splitlines(), 1):
        if not line.strip():
            continue
        try:
            yield items.of_line(orjson.loads(line))
        except (TypeError, ValueError):
            sentence = f"line {number} of {path} is no item of {items.task.name}: write it as {example(items.task)}"
            raise InvalidInput(sentence) from None


def example(task: Task) -> str:
    """Return the example of a task as a line of JSON."""
    return orjson.dumps({**task.example}).decode()


def prose(rng: random.Random, tokens: int) -> str:
    """Return sentences of this many tokens in all; the last may be cut."""
    words: list[str] = []
    while len(words) < tokens:
        words += [*" ".join(rng.choice(phrases) for phrases in PHRASES).split(), "."]
    return " ".join(words[:tokens]).replace(" .", ".")
