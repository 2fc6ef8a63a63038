"""The items of a job, from a body, a batch or a URL: checked one by one, and written as items or as their errors."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from pydantic import ValidationError

from corelane.domain.job_requests import require_few_rows
from corelane.domain.jobs import MAX_ID, EarlierIds, Item, JobHead, TaskOptions, as_text, no_text, same_id
from corelane.domain.wire import with_few_unknown
from corelane.errors import InvalidInput
from corelane.errors.sentences import first_fault
from corelane.settings import Settings
from corelane.store.item_files import ItemFiles, encode_error, encode_line
from corelane.store.jobs.submission import ItemFile, Submission
from corelane.submitting.submitter import Estimator, require_few_items, rows_of
from corelane.tasks.forms import form_of
from corelane.tasks.registry import task_named
from corelane.tasks.task import Task

#: Rows are held up to this size before they are written, in bytes.
WRITE_BYTES = 1024 * 1024


class Writable(Protocol):
    """A file that is being written."""

    def write(self, data: bytes, /) -> object:
        """Add bytes."""


@dataclass(frozen=True, slots=True)
class BadItem:
    """An invalid item: its id, if that could be read, and the error."""

    id: str | None
    code: str
    detail: str


class ItemChecker:
    """Checks the items of one job, in their order."""

    def __init__(self, settings: Settings, texts: Mapping[str, str], options: TaskOptions, *, refuses: bool) -> None:
        """With ``refuses``, bad items raise InvalidInput."""
        self.settings = settings
        self._options = options
        self._task = task_named(options.task)
        self._form = options.form or self._task.item
        self._refuses = refuses
        self._ids = EarlierIds()
        self.share(texts)

    def share(self, texts: Mapping[str, str]) -> None:
        """Set the texts that the job carries, replacing earlier ones."""
        self.texts = dict(texts)
        self._numbers = {name: number for number, name in enumerate(texts)}
        self._estimator = Estimator(texts, self._options)

    def check(self, where: str, value: Any) -> Item | BadItem:
        """Return an item, or its error; raise InvalidInput if bad items are refused."""
        try:
            item = read_item(self._task, self._form, where, value)
            self.require_valid(where, item)
            if item.id is not None and (before := self._ids.first(item.id, where)) is not None:
                raise InvalidInput(f"{where} {same_id(item.id, before)}")
        except InvalidInput as error:
            return self.bad(error, value)
        return item

    def require_valid(self, where: str, item: Item) -> None:
        """Raise InvalidInput for an item that has the right form but is not valid in this job."""
        self._task.check(self.settings, f"{where}: ", item)
        self._task.check_options(self._options, f"{where}: ", item)
        if (name := self._task.parts(item)[2]) is not None and name not in self._numbers:
            raise InvalidInput(f"{where}: {no_text(name)}")

    def bad(self, error: InvalidInput, value: Any = None) -> BadItem:
        """Return an item's error; raise it if bad items are refused."""
        if self._refuses:
            raise error
        return BadItem(id_of(value), error.code, error.detail)

    def row(self, found: Item | BadItem) -> tuple[bytes, int]:
        """Return an item in stored form, and its tokens."""
        if isinstance(found, BadItem):
            return encode_error(found.id, (found.code, found.detail)), 0
        tokens = self._estimator.tokens(found)
        return encode_line(self._task.row(found, self._numbers), tokens), tokens


def read_item(task: Task, form: type[Item], where: str, value: Any) -> Item:
    """Check only the form of an item and return it; raise InvalidInput with its place and the wrong field.

    The error also names what the task's items contain, unless ``form`` is a version's own.
    """
    if not isinstance(value, dict):
        raise InvalidInput(f"{where} is not a JSON object")
    try:
        return form.model_validate(with_few_unknown(form, value))
    except ValidationError as error:
        wanted = f"; this model takes {form_of(task)}" if form is task.item else ""
        raise InvalidInput(f"{where}: {first_fault(error, form)}{wanted}") from None


def id_of(value: Any, name: str = "id") -> str | None:
    """Return the caller's id in a value that may not be an item."""
    found = as_text(value.get(name)) if isinstance(value, dict) else None
    return found if isinstance(found, str) and len(found) <= MAX_ID else None


class ItemWriter:
    """Writes the items of one job, or the errors in their places, into its file, and counts them."""

    def __init__(self, checker: ItemChecker, file: Writable) -> None:
        self._checker, self._file = checker, file
        self._rows: list[bytes] = []
        self._held = 0
        #: Number of items, their tokens, and the bytes of their rows.
        self.items = self.tokens = self.bytes = 0

    @property
    def is_full(self) -> bool:
        """Return whether so much is held that it should be written."""
        return self._held >= WRITE_BYTES

    def add(self, found: Item | BadItem) -> None:
        """Add an item, or its error; it is held until ``flush``."""
        row, tokens = self._checker.row(found)
        self._rows.append(row)
        self._held += len(row)
        self.bytes += len(row)
        self.items += 1
        self.tokens += tokens

    def write(self, found: Item | BadItem) -> None:
        """Add an item, or its error, and write what is held if it is much."""
        self.add(found)
        if self.is_full:
            self.flush()

    def flush(self) -> None:
        """Write what is held."""
        self._file.write(b"".join(self._rows))
        self._rows, self._held = [], 0


class TolerantJobs:
    """Makes jobs of JSON whose bad items fail alone."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def check(self, head: JobHead, values: Sequence[Any]) -> tuple[ItemChecker, list[Item | BadItem]]:
        """Return the items of a job, with the errors of bad ones; raise TooLarge if there are too many."""
        require_few_items(self._settings, len(values))
        if (rows := rows_of(head.options))[0]:
            require_few_rows(values, *rows)
        checker = ItemChecker(self._settings, head.shared_texts, head.options, refuses=False)
        return checker, await asyncio.to_thread(
            lambda: [checker.check(f"item {index}", value) for index, value in enumerate(values)]
        )

    async def prepare(self, submission: Submission, values: Sequence[Any]) -> Submission:
        """Return a submission with its items. If some are bad, all are in a file, with the errors in their places."""
        checker, found = await self.check(submission.head, values)
        items = [each for each in found if isinstance(each, Item)]
        if len(items) == len(found):
            return replace(submission, items=items)
        job, file = await asyncio.to_thread(self._keep, checker, found)
        return replace(submission, id=job, file=file)

    def _keep(self, checker: ItemChecker, found: Sequence[Item | BadItem]) -> tuple[str, ItemFile]:
        """Write items into the file of a new job; return its id and the file. Raise StoreFull or StorageFailed."""
        with ItemFiles(self._settings).writing() as new:
            rows = ItemWriter(checker, new)
            for each in found:
                rows.write(each)
            rows.flush()
            job, name = new.finish()
        return job, ItemFile(name, rows.items, rows.tokens)
