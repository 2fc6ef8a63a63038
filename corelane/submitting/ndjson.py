"""NDJSON jobs: a body is read as it comes, checked line by line, and written to a file from which the keeper feeds.

The file is complete before its job is submitted. If the request fails, it is deleted; if the process dies, the keeper
deletes it.
"""

import asyncio
from collections.abc import AsyncIterator
from functools import cache, partial
from typing import Any

from pydantic import ValidationError

from corelane.domain.aliases import DEFAULT_ALIAS
from corelane.domain.job_requests import LinesHead
from corelane.domain.jobs import DEFAULT_TASK, Item
from corelane.errors import InvalidInput, JobExpired, NotReady, Overloaded, TooLarge
from corelane.errors.sentences import first_fault
from corelane.settings import Settings
from corelane.store.item_files import ItemFiles, NewItems
from corelane.store.jobs.idempotency import Digest
from corelane.store.jobs.submission import Admission, ItemFile, Submission
from corelane.submitting.items import BadItem, ItemChecker, read_line
from corelane.submitting.large_bodies import LARGE_BYTES, LargeBodies
from corelane.submitting.lines import InputLine, LineCutter
from corelane.submitting.model_tasks import ModelTasks
from corelane.submitting.submitter import Submitted, Submitter, check_texts
from corelane.tasks.forms import forms
from corelane.tasks.registry import TASKS, task_named

#: Most items of one job that is sent as lines. Their results wait in Redis, some 200 bytes each: 2 GB.
MOST_ITEMS = 10_000_000

#: Lines are buffered up to this size before they are written, in bytes.
WRITE_BYTES = 1024 * 1024


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

        ``large`` reads long lines, and limits those of all callers together.
        """
        self._large, self._owner = large or LargeBodies(), owner
        self._settings = settings
        self._body = body
        self._digest = digest
        self._lines = self._split(body)
        self._tasks = tasks
        #: The number and the value of the first line, and the same if that is an item.
        self._line: tuple[int, Any] = 0, None
        self._first: tuple[int, Any] | None = None
        self.head: LinesHead = forms(task_named(DEFAULT_TASK)).lines()
        self._checker = self._new_checker()

    async def read_head(self) -> None:
        """Read up to the first item; raise InvalidInput or TooLarge."""
        line = await anext(self._lines, None)
        if line is None:
            raise InvalidInput("the body has no lines; send one item a line, as a JSON object")
        value = await self._read(line)
        if not isinstance(value, dict):
            raise InvalidInput(f"line {line.number} is not a JSON object")
        self._line = line.number, value
        await self.take_head()

    async def take_head(self) -> None:
        """Take the first line as the head, or as an item, according to the task of its model; raise InvalidInput."""
        number, value = self._line
        model = value.get("model")
        task = await self._tasks.of_model(model if isinstance(model, str) else DEFAULT_ALIAS, again=True)
        is_item = "id" in value or any(name in item_fields() for name in value)
        if "model" not in value and task.item.model_config.get("extra") == "allow":
            is_item = is_item or not value.keys() <= forms(task).lines.model_fields.keys()
        self._first = self._line if is_item else None
        self.head = _head(forms(task).lines, number, {} if is_item else value)
        check_texts(self._settings, self.head.shared_texts)
        self._checker = self._new_checker()

    def _new_checker(self) -> ItemChecker:
        head = self.head
        refuses = head.invalid_items != "fail"
        return ItemChecker(self._settings, head.shared_texts, head.options, refuses=refuses)

    async def keep(self) -> tuple[str, ItemFile]:
        """Read the items into a file; return the id of the new job, and the file.

        Raise InvalidInput, TooLarge, StoreFull or StorageFailed.
        """
        with ItemFiles(self._settings).writing() as new:
            items, tokens = await self._write(new)
            job, file = await asyncio.to_thread(new.finish)
        return job, ItemFile(file, items, tokens, self.head.results_window)

    async def digest_only(self) -> None:
        """Read the body only for its digest."""
        async for chunk in self._body:
            if self._digest is not None:
                self._digest.update(chunk)

    async def _write(self, file: NewItems) -> tuple[int, int]:
        """Write the items; return their number and their tokens."""
        items = tokens = 0
        pending: list[bytes] = []
        pending_bytes = 0
        async for found in self.read_items():
            row, cost = self._checker.row(found)
            pending.append(row)
            items, tokens, pending_bytes = items + 1, tokens + cost, pending_bytes + len(row)
            if pending_bytes >= WRITE_BYTES:
                await asyncio.to_thread(file.write, b"".join(pending))
                pending, pending_bytes = [], 0
        await asyncio.to_thread(file.write, b"".join(pending))
        return items, tokens

    async def read_items(self) -> AsyncIterator[Item | BadItem]:
        """Yield the items after the head, checked, with the errors of those that fail alone.

        Raise InvalidInput or TooLarge, also if there are no items.
        """
        items, most = 0, MOST_ITEMS
        async for found in self._items():
            items += 1
            if items > most:
                raise TooLarge(f"the job has more than {most:,} lines: send several jobs")
            yield found
        if items == 0:
            raise InvalidInput("the body has a head and no items; send one item a line after it, as a JSON object")

    async def _items(self) -> AsyncIterator[Item | BadItem]:
        if self._first is not None:
            number, value = self._first
            yield self._checker.check(f"line {number}", value)
        async for line in self._lines:
            try:
                value = await self._read(line)
            except InvalidInput as error:
                yield self._checker.bad(error)
                continue
            yield self._checker.check(f"line {line.number}", value)

    async def _split(self, body: AsyncIterator[bytes]) -> AsyncIterator[InputLine]:
        """Yield non-blank lines; raise TooLarge within one that is too long, unless bad lines fail alone."""
        most, room = self._settings.max_body_bytes, None
        cutter = LineCutter(most)
        try:
            async for chunk in body:
                if self._digest is not None:
                    self._digest.update(chunk)
                for line in cutter.feed(chunk):
                    yield line
                if cutter.is_long and self.head.invalid_items != "fail":
                    read_line(self._settings, cutter.number + 1, None)
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

    async def _read(self, line: InputLine) -> Any:
        """Return the JSON of a line; raise InvalidInput or TooLarge."""
        read = partial(read_line, self._settings, line.number)
        return await self._large.read(self._owner, line.text, read) if line.text is not None else read(None)


async def submit_file(
    submitter: Submitter, settings: Settings, submission: Submission, admission: Admission | None = None
) -> Submitted:
    """Submit a job whose items are in a file. If the job certainly does not use the file, delete it."""
    files = ItemFiles(settings)
    try:
        submitted = await submitter.submit(submission, admission)
    except (InvalidInput, JobExpired, NotReady, Overloaded):
        await asyncio.to_thread(files.delete, submission.id)
        raise
    if submitted.is_replayed:
        await asyncio.to_thread(files.delete, submission.id)
    return submitted


@cache
def item_fields() -> frozenset[str]:
    """Return the names of fields by which a first line is known to be an item, of any task: no head has them."""
    names = {name for task in TASKS.values() for name in task.item.model_fields}
    return frozenset(names - {name for task in TASKS.values() for name in forms(task).lines.model_fields} - {"id"})


def _head(form: type[LinesHead], number: int, value: dict[str, Any]) -> LinesHead:
    try:
        return form.model_validate(value)
    except ValidationError as error:
        raise InvalidInput(f"line {number}: {first_fault(error, form)}") from None
