"""NDJSON jobs: a body is read as it comes in, checked line by line, and written to a file that the keeper feeds from.

Neither the body nor its items are ever held in memory. The file is complete before its job is submitted. If the request
fails, the file is deleted; if the process dies, the keeper deletes it.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import orjson
from pydantic import ValidationError

from corelane.domain.contexts import Known, is_context_id, no_context
from corelane.domain.dispatch import Estimator, item_row
from corelane.domain.jobs import Item, LinesHead
from corelane.domain.wire import with_few_unknown
from corelane.errors import InvalidInput, JobExpired, NotReady, Overloaded, TooLarge, UnknownContext
from corelane.errors.sentences import place_of, sentence
from corelane.settings import Settings
from corelane.store.item_files import ItemFiles, NewItems, encode_line
from corelane.store.jobs.idempotency import Digest
from corelane.store.jobs.submission import Admission, ItemFile, Submission
from corelane.submitting.contexts import Named
from corelane.submitting.large_bodies import LARGE_BYTES, LargeBodies, load
from corelane.submitting.lines import InputLine, LineCutter
from corelane.submitting.submitter import Submitted, Submitter, check_contexts, check_item

#: Lines are buffered up to this size before they are written, in bytes.
WRITE_BYTES = 1024 * 1024

Part = TypeVar("Part", Item, LinesHead)


class NdjsonBody:
    """The lines of one request: the head first, if there is one, then items."""

    def __init__(
        self,
        settings: Settings,
        body: AsyncIterator[bytes],
        digest: Digest | None = None,
        find: Callable[[str], Awaitable[Named]] | None = None,
        large: LargeBodies | None = None,
        owner: str = "",
    ) -> None:
        """``digest``, if given, is updated with every byte of the body; ``find`` finds a stored context by its id.

        ``large`` bounds and reads long lines, of all who send some.
        """
        self._large, self._owner = large or LargeBodies(), owner
        self._settings = settings
        #: The stored contexts that items named so far and the job does not carry.
        self.known: dict[str, Known] = {}
        self._body = body
        self._digest = digest
        self._lines = self._split(body)
        self._first: tuple[int, Any] | None = None
        self.head = LinesHead()
        self.find = find

    async def read_head(self) -> None:
        """Read up to the first item; raise InvalidInput or TooLarge."""
        self._first = await anext(self._lines, None)
        if self._first is None:
            raise InvalidInput("the body has no lines; send one JSON object with `question` and `context` a line")
        number, value = self._first
        if "question" not in value:
            self._first = None
            self.head = _validated(LinesHead, number, value)
            check_contexts(self._settings, self.head.contexts or {})

    async def keep(self) -> tuple[str, ItemFile]:
        """Read the items into a file; return the new id of their job, and the file.

        Raise InvalidInput, TooLarge, StoreFull or StorageFailed.
        """
        with ItemFiles(self._settings).writing() as new:
            items, tokens = await self._write(new)
            job, file = await asyncio.to_thread(new.finish)
        return job, ItemFile(file, items, tokens, self.head.results_window)

    async def digest_only(self) -> None:
        """Read the body without keeping it."""
        async for chunk in self._body:
            if self._digest is not None:
                self._digest.update(chunk)

    async def _write(self, file: NewItems) -> tuple[int, int]:
        """Write the items; return their number and their tokens."""
        contexts = self.head.contexts or {}
        numbers = {context_id: number for number, context_id in enumerate(contexts)}
        estimator = Estimator(contexts, self.head.options.doc_stride, self.known)
        items = tokens = 0
        pending: list[bytes] = []
        pending_bytes = 0
        async for item in self.read_items():
            if item.context_id is not None and item.context_id not in numbers and item.context_id not in self.known:
                # A stored one that the job carries: it has just been found.
                numbers[item.context_id] = len(numbers)
                estimator.share(item.context_id, (self.head.contexts or {})[item.context_id])
            cost = estimator.tokens(item)
            pending.append(encode_line(item_row(item, numbers), cost))
            items, tokens, pending_bytes = items + 1, tokens + cost, pending_bytes + len(pending[-1])
            if pending_bytes >= WRITE_BYTES:
                await asyncio.to_thread(file.write, b"".join(pending))
                pending, pending_bytes = [], 0
        await asyncio.to_thread(file.write, b"".join(pending))
        return items, tokens

    async def read_items(self) -> AsyncIterator[Item]:
        """Yield the items that follow the head, checked; raise InvalidInput or TooLarge, also if there is none."""
        items, most = 0, self._settings.max_upload_items
        async for number, value in self._items():
            item = _validated(Item, number, value)
            check_item(self._settings, f"line {number}", item)
            if item.context_id is not None:
                await self._find_context(number, item.context_id)
            items += 1
            if items > most:
                raise TooLarge(
                    f"the job has more than {most:,} lines; send several jobs, or raise CORELANE_MAX_UPLOAD_ITEMS"
                )
            yield item
        if items == 0:
            raise InvalidInput("the body has a head and no items; send one JSON object with `question` a line after it")

    async def _find_context(self, number: int, name: str) -> None:
        """See to it that an item's context is known; raise InvalidInput, or UnknownContext."""
        contexts = self.head.contexts or {}
        if name in contexts or name in self.known:
            return
        if self.find is None or not is_context_id(name):
            raise InvalidInput(f"line {number}: {no_context(name)}")
        try:
            named = await self.find(name)
        except UnknownContext as error:
            raise UnknownContext(f"line {number}: {error.detail}") from None
        self.known |= named.known
        if named.texts:
            self.head = self.head.model_copy(update={"contexts": contexts | named.texts})

    async def _items(self) -> AsyncIterator[tuple[int, Any]]:
        if self._first is not None:
            yield self._first
        async for line in self._lines:
            yield line

    async def _split(self, body: AsyncIterator[bytes]) -> AsyncIterator[tuple[int, dict[str, Any]]]:
        """Yield objects with their line numbers, from 1; skip blank lines."""
        most, room = self._settings.max_body_bytes, None
        cutter = LineCutter(most)
        try:
            async for chunk in body:
                if self._digest is not None:
                    self._digest.update(chunk)
                for line in cutter.feed(chunk):
                    yield line.number, await self._parse(line)
                if cutter.is_long:
                    raise _too_long(cutter.number + 1, most)
                if room is None and cutter.held > LARGE_BYTES:
                    room = await self._large.enter(self._owner, most)
                elif room is not None and cutter.held <= LARGE_BYTES:
                    room.leave()
                    room = None
                # Of a body that has come already, no read waits.
                await asyncio.sleep(0)
            for line in cutter.finish():
                yield line.number, await self._parse(line)
        finally:
            if room is not None:
                room.leave()

    async def _parse(self, line: InputLine) -> dict[str, Any]:
        number = line.number
        if line.text is None:
            raise _too_long(number, self._settings.max_body_bytes)
        try:
            value = await self._large.read(self._owner, line.text, load)
        except orjson.JSONDecodeError as error:
            raise InvalidInput(f"line {number} is not JSON in UTF-8: {error.msg}") from None
        except TooLarge as error:
            raise TooLarge(f"line {number}: {error.detail}") from None
        if not isinstance(value, dict):
            raise InvalidInput(f"line {number} is not a JSON object")
        return value


async def submit_file(
    submitter: Submitter, settings: Settings, submission: Submission, admission: Admission | None = None
) -> Submitted:
    """Submit a job whose items are in a file; delete the file if the job certainly does not use it."""
    files = ItemFiles(settings)
    try:
        submitted = await submitter.submit(submission, admission)
    except (InvalidInput, JobExpired, NotReady, Overloaded):
        await asyncio.to_thread(files.delete, submission.id)
        raise
    if submitted.is_replayed:
        await asyncio.to_thread(files.delete, submission.id)
    return submitted


def _too_long(number: int, most: int) -> TooLarge:
    return TooLarge(f"line {number} has more than {most:,} bytes; shorten it, or raise CORELANE_MAX_BODY_BYTES")


def _validated(model: type[Part], number: int, value: dict[str, Any]) -> Part:
    try:
        return model.model_validate(with_few_unknown(model, value))
    except ValidationError as error:
        first = error.errors()[0]
        at = place_of(first)
        raise InvalidInput(f"line {number}: {at + ': ' if at else ''}{sentence(first)}") from None
