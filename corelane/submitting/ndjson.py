"""The one reader of lines of JSON (NDJSON): a job's body, the file of a batch and an input at a URL are read by it.

Bytes are cut into lines, each with its number and its end; a line that is too long is not held. A line is parsed, and
the first one may be the head of its job. A body is written to a file as it comes; the keeper feeds the job from that
file. The file is complete before its job is submitted. If the request fails, the file is deleted; if the process dies,
the keeper deletes it.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeVar

import orjson
from pydantic import ValidationError

from corelane.domain.aliases import DEFAULT_ALIAS
from corelane.domain.job_requests import LinesHead
from corelane.domain.jobs import DEFAULT_TASK, Item
from corelane.errors import InvalidInput, JobExpired, NotReady, Overloaded, TooLarge
from corelane.errors.sentences import first_fault
from corelane.settings import Settings
from corelane.store.item_files import ItemFiles
from corelane.store.jobs.idempotency import Digest
from corelane.store.jobs.submission import Admission, ItemFile, Submission
from corelane.submitting.items import BadItem, ItemChecker, ItemWriter
from corelane.submitting.large_bodies import LARGE_BYTES, LargeBodies, load
from corelane.submitting.model_tasks import ModelTasks
from corelane.submitting.submitter import Submitted, Submitter, check_texts
from corelane.tasks.forms import forms
from corelane.tasks.registry import TASKS, task_named
from corelane.tasks.task import Task

#: Some editors write this before the first line.
BYTE_ORDER_MARK = b"\xef\xbb\xbf"

#: A line, from its first character that is not white space.
LINE = re.compile(rb"\S[^\n]*")

#: Most items of one job that is sent as lines. Their results wait in Redis, some 200 bytes each: 2 GB.
MOST_ITEMS = 10_000_000

Read = TypeVar("Read")


@dataclass(frozen=True, slots=True)
class InputLine:
    """A line that is not blank; ``text`` is None if it was too long, ``end`` is where the next line begins."""

    number: int
    text: bytes | None
    end: int = 0


class LineCutter:
    """Cuts bytes, which come in chunks of any size, into lines."""

    def __init__(self, most_bytes: int, start: int = 0, number: int = 0) -> None:
        """Begin at the offset ``start``, after ``number`` lines."""
        self._most = most_bytes
        self._offset = start
        self._line = bytearray()
        #: Number of lines that have ended.
        self.number = number
        #: Whether the current line is longer than allowed.
        self.is_long = False

    @property
    def held(self) -> int:
        """Return how many bytes of the current line are held."""
        return len(self._line)

    def feed(self, chunk: bytes) -> Iterator[InputLine]:
        """Yield the lines that end in a chunk."""
        first, last, begin = chunk.find(b"\n"), chunk.rfind(b"\n"), self._offset
        self._offset += len(chunk)
        if first < 0:
            self._add(chunk)
            return
        self._add(chunk[:first])
        yield from self._end(begin + first + 1)
        at = first + 1
        for found in LINE.finditer(chunk, at, last):
            self.number += chunk.count(b"\n", at, found.start())
            at = found.start()
            text = found[0] if len(found[0]) <= self._most else None
            yield InputLine(self.number + 1, text, begin + found.end() + 1)
        self.number += chunk.count(b"\n", at, last)
        if last > first:
            self.number += 1
        self._add(chunk[last + 1 :])

    def finish(self) -> Iterator[InputLine]:
        """Yield the last line, if it has no line feed at its end."""
        yield from self._end(self._offset)

    def _add(self, part: bytes) -> None:
        if self.is_long:
            return
        # A byte order mark may come before the first line, and only there.
        self._line += part if self._line or self.number == 0 else part.lstrip()
        if len(self._line) > self._most:
            self._line = self._line.removeprefix(BYTE_ORDER_MARK).lstrip()
            self.is_long = len(self._line) > self._most
            if self.is_long:
                self._line.clear()

    def _end(self, end: int) -> Iterator[InputLine]:
        number, text, is_long = self.number + 1, bytes(self._line), self.is_long
        text = text.removeprefix(BYTE_ORDER_MARK) if number == 1 else text
        self.number, self.is_long, self._line = number, False, bytearray()
        if is_long or text.strip():
            yield InputLine(number, None if is_long else text, end)


def cut_lines(chunks: Iterable[bytes], most_bytes: int, start: int = 0, number: int = 0) -> Iterator[InputLine]:
    """Yield lines from chunks; ``start`` is their offset, ``number`` how many lines precede them."""
    cutter = LineCutter(most_bytes, start, number)
    for chunk in chunks:
        yield from cutter.feed(chunk)
    yield from cutter.finish()


def read_line(settings: Settings, line: InputLine, kind: str = "line") -> Any:
    """Return the JSON of a line; raise InvalidInput, or TooLarge if the line was too long to be kept."""
    if line.text is None:
        most = f"{settings.max_body_bytes:,} bytes"
        raise TooLarge(f"{kind} {line.number} has more than {most}; shorten it, or raise CORELANE_MAX_BODY_BYTES")
    try:
        return load(line.text)
    except orjson.JSONDecodeError as error:
        raise InvalidInput(f"{kind} {line.number} is not JSON in UTF-8: {error.msg}") from None
    except TooLarge as error:
        raise TooLarge(f"{kind} {line.number}: {error.detail}") from None


def check_line(checker: ItemChecker, line: InputLine) -> Item | BadItem:
    """Return the item of a line, or its error; raise InvalidInput if the job refuses bad items."""
    try:
        value = read_line(checker.settings, line)
    except InvalidInput as error:
        return checker.bad(error)
    return checker.check(f"line {line.number}", value)


def read_head(settings: Settings, task: Task, where: str, value: Mapping[str, Any]) -> LinesHead | None:
    """Return a first line as the job's head; None if it is an item. Raise InvalidInput or TooLarge for a bad head."""
    form = forms(task).head
    is_item = "id" in value or not item_fields().isdisjoint(value)
    if "model" not in value and task.item.model_config.get("extra") == "allow":
        is_item = is_item or not value.keys() <= form.model_fields.keys()
    if is_item:
        return None
    try:
        head = form.model_validate(value)
    except ValidationError as error:
        raise InvalidInput(f"{where}: {first_fault(error, form)}") from None
    check_texts(settings, head.shared_texts)
    return head


@cache
def item_fields() -> frozenset[str]:
    """Return the fields that show that a first line is an item, for items of all tasks: no head has such a field."""
    names = {name for task in TASKS.values() for name in task.item.model_fields}
    return frozenset(names - {name for task in TASKS.values() for name in forms(task).head.model_fields} - {"id"})


class NdjsonBody:
    """The lines of one request: first the head, if there is one, then items."""

    def __init__(
        self,
        settings: Settings,
        body: AsyncIterator[bytes],
        tasks: ModelTasks,
        digest: Digest | None = None,
        large: LargeBodies | None = None,
        owner: str = "",
    ) -> None:
        """``digest``, if given, is updated with every byte of the body.

        ``large`` reads long lines, and limits the long lines of all callers together.
        """
        self._large, self._owner = large or LargeBodies(), owner
        self._settings, self._tasks = settings, tasks
        self._body, self._digest = body, digest
        self._lines = self._cut()
        #: The number and the value of the first line, and whether this line is an item.
        self._first: tuple[int, dict[str, Any]] = 0, {}
        self._is_item = False
        self.head: LinesHead = forms(task_named(DEFAULT_TASK)).head()

    async def read_head(self) -> None:
        """Read the first line, and take it as the head or as an item; raise InvalidInput or TooLarge."""
        line = await anext(self._lines, None)
        if line is None:
            raise InvalidInput("the body has no lines; send one item a line, as a JSON object")
        value = await self._read(line, partial(read_line, self._settings))
        if not isinstance(value, dict):
            raise InvalidInput(f"line {line.number} is not a JSON object")
        self._first = line.number, value
        await self.take_head()

    async def take_head(self) -> None:
        """Take the first line as the head, or as an item, according to the task of its model; raise InvalidInput."""
        number, value = self._first
        model = value.get("model")
        task = await self._tasks.of_model(model if isinstance(model, str) else DEFAULT_ALIAS, again=True)
        head = read_head(self._settings, task, f"line {number}", value)
        self._is_item = head is None
        self.head = forms(task).head() if head is None else head

    async def keep(self) -> tuple[str, ItemFile]:
        """Read the items into a file; return the id of the new job, and the file.

        Raise InvalidInput, TooLarge, StoreFull or StorageFailed.
        """
        head = self.head
        checker = ItemChecker(self._settings, head.shared_texts, head.options, refuses=head.invalid_items != "fail")
        check = partial(check_line, checker)
        with ItemFiles(self._settings).writing() as new:
            rows = ItemWriter(checker, new)
            if self._is_item:
                number, value = self._first
                rows.add(checker.check(f"line {number}", value))
            async for line in self._lines:
                if rows.items == MOST_ITEMS:
                    raise TooLarge(f"the job has more than {MOST_ITEMS:,} lines: send several jobs")
                rows.add(await self._read(line, check))
                if rows.is_full:
                    await asyncio.to_thread(rows.flush)
            if not rows.items:
                raise InvalidInput("the body has a head and no items; send one item a line after it, as a JSON object")
            await asyncio.to_thread(rows.flush)
            job, name = await asyncio.to_thread(new.finish)
        return job, ItemFile(name, rows.items, rows.tokens)

    async def digest_only(self) -> None:
        """Read the body only for its digest."""
        async for chunk in self._body:
            if self._digest is not None:
                self._digest.update(chunk)

    async def _cut(self) -> AsyncIterator[InputLine]:
        """Yield non-blank lines; raise TooLarge within one that is too long, unless bad lines fail alone."""
        most, room = self._settings.max_body_bytes, None
        cutter = LineCutter(most)
        try:
            async for chunk in self._body:
                if self._digest is not None:
                    self._digest.update(chunk)
                for line in cutter.feed(chunk):
                    yield line
                if cutter.is_long and self.head.invalid_items != "fail":
                    read_line(self._settings, InputLine(cutter.number + 1, None))
                if room is None and cutter.held > LARGE_BYTES:
                    room = await self._large.enter(self._owner, most)
                elif room is not None and cutter.held <= LARGE_BYTES:
                    room.leave()
                    room = None
                # If all of the body has come already, reading it never waits, so let other tasks run here.
                await asyncio.sleep(0)
            for line in cutter.finish():
                yield line
        finally:
            if room is not None:
                room.leave()

    async def _read(self, line: InputLine, read: Callable[[InputLine], Read]) -> Read:
        """Return what ``read`` makes of a line; in a thread, in its owner's turn, if the line is large."""
        if line.text is None or len(line.text) <= LARGE_BYTES:
            return read(line)
        return await self._large.read(self._owner, line.text, lambda _: read(line))


async def submit_file(
    submitter: Submitter, settings: Settings, submission: Submission, admission: Admission | None = None
) -> Submitted:
    """Submit a job whose items are in a file. Delete the file if it is certain that no job uses it."""
    files = ItemFiles(settings)
    try:
        submitted = await submitter.submit(submission, admission)
    except (InvalidInput, JobExpired, NotReady, Overloaded):
        await asyncio.to_thread(files.delete, submission.id)
        raise
    if submitted.is_replayed:
        await asyncio.to_thread(files.delete, submission.id)
    return submitted
