"""Check the lines of a batch's input, and sort their items into groups.

Every line that is not blank has a number, from 1, and exactly one outcome: the reply to its body, or an error. A bad
line never affects another. The batch's endpoint is the dialect of its lines.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from itertools import islice
from typing import Any

import orjson
from pydantic import ValidationError

from corelane.domain.aliases import DEFAULT_ALIAS
from corelane.domain.batches import BatchError
from corelane.domain.ids import new_job_id
from corelane.domain.jobs import Item
from corelane.errors import InvalidInput, TooLarge
from corelane.errors.sentences import first_fault
from corelane.plugins.files.settings import FilesFields
from corelane.plugins.files.store.batches import Group
from corelane.settings import Settings
from corelane.submitting.items import ItemChecker, ItemWriter, Writable, id_of
from corelane.submitting.ndjson import InputLine, cut_lines, item_fields, read_line
from corelane.tasks.dialects import line_form
from corelane.tasks.forms import Predict
from corelane.tasks.registry import DIALECTS, stored_options
from corelane.tasks.task import Task

#: Most different combinations of model and options in one batch; each becomes a job.
MAX_GROUPS = 32

#: Most errors of lines that a batch lists.
MAX_ERRORS = 20

#: Bytes of a custom_id's digest: enough that even among a billion ids no two digests are equal by chance.
DIGEST_BYTES = 16

#: Lines that are checked at a time in a thread.
BLOCK_LINES = 200

#: The error of a line in the format of `corelane batch`.
FOR_THE_COMMAND = "this is a line for `corelane batch`; lines of a batch have `custom_id`, `method`, `url` and `body`"


@dataclass(frozen=True, slots=True)
class PlannedLine:
    """The outcome planned for a line: the next results of a group, or an error (code and sentence)."""

    number: int
    custom_id: str | None
    group: int | None
    error: tuple[str, str] | None = None
    #: Number of the line's items.
    items: int = 1

    @classmethod
    def decode(cls, line: bytes) -> "PlannedLine":
        """Read a planned line from the plan."""
        number, custom_id, group, error, items = orjson.loads(line)
        return cls(number, custom_id, group, None if error is None else (error[0], error[1]), items)

    def encode(self) -> bytes:
        """Return the line as text for the plan."""
        planned = (self.number, self.custom_id, self.group, self.error, self.items)
        return orjson.dumps(planned, option=orjson.OPT_APPEND_NEWLINE)


class LineRefused(Exception):
    """A line cannot be asked, for a reason that applies only to lines of batches."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code, self.detail = code, detail


class LineGroup:
    """The lines that ask a model with the same options: their items become one job."""

    def __init__(self, job: str, model: str, options: str, checker: ItemChecker, file: Writable) -> None:
        self._job, self._model, self._options = job, model, options
        self._rows, self._lines = ItemWriter(checker, file), 0
        self.checker = checker

    def add(self, items: Sequence[Item]) -> None:
        """Write the items of one more line."""
        for item in items:
            self._rows.write(item)
        self._lines += 1

    def finish(self) -> Group:
        """Write what is held, and return the group as it is stored."""
        self._rows.flush()
        return Group(self._job, self._model, self._options, self._rows.items, self._rows.tokens, self._lines)


class Sorter:
    """Checks the lines of one file in their order, writes their items by model and options, and plans their outcomes.

    ``create`` makes the file of a job's items.
    """

    def __init__(self, settings: Settings, endpoint: str, create: Callable[[str], Writable]) -> None:
        self._settings, self._most = settings, settings.of(FilesFields).max_file_lines
        self._dialect, self._create = DIALECTS[endpoint], create
        self._form, self._example = line_form(self._dialect), orjson.dumps(dict(self._dialect.example)).decode()
        #: The model of lines that name none; and, for lines of any task, what looks up the task of a model.
        self.model: str | None = None
        self.task_of: Callable[[str], Future[Task]] | None = None
        #: The groups, in the order of their first lines, and their places by model and options.
        self.groups: list[LineGroup] = []
        self._places: dict[tuple[str, str], int] = {}
        #: The options of the line before, and their stored form: most lines have the same.
        self._options: tuple[type, dict[str, Any]] | None = None
        self._stored = ""
        #: The number of lines read, the number of lines that cannot be asked, and the errors of the first of them.
        self.lines = self.bad = 0
        #: The number of items of all lines. OpenAI bounds it as it does the number of lines.
        self.items = 0
        self.errors: list[BatchError] = []
        self._seen: dict[bytes, int] = {}

    async def blocks(self, content: Iterable[bytes]) -> AsyncIterator[list[PlannedLine]]:
        """Yield the plans of a file's lines in blocks, up to a batch's limit."""
        lines = cut_lines(content, self._settings.max_body_bytes)
        while max(self.lines, self.items) <= self._most and (
            read := await asyncio.to_thread(lambda: list(islice(lines, BLOCK_LINES)))
        ):
            yield await asyncio.to_thread(lambda: [self.sort(line) for line in read])

    @property
    def refusal(self) -> tuple[str, str] | None:
        """Return why the file is refused as a whole, even if its lines are good: a code and a sentence."""
        if self.lines > self._most:
            return "too_many_lines", f"the file has more than {self._most:,} lines; send several batches"
        if self.items > self._most:
            return "too_many_inputs", f"the lines have more than {self._most:,} inputs; send several batches"
        return None if self.lines else ("empty_file", "the file has no lines")

    def sort(self, line: InputLine) -> PlannedLine:
        """Write the items of a line if it can be asked; return its plan."""
        custom_id, group, items, error = None, None, 1, None
        try:
            value = self._read(line)
            custom_id = id_of(value, "custom_id") or None
            self._require_new(custom_id, line.number)
            group, items = self._take(f"line {line.number}", value)
        except (LineRefused, InvalidInput, TooLarge) as refused:
            error = refused.code, refused.detail
            self.bad += 1
            if len(self.errors) < MAX_ERRORS:
                self.errors.append(BatchError(code=refused.code, message=refused.detail, line=line.number))
        self.lines += 1
        self.items += items
        return PlannedLine(line.number, custom_id, group, error, items)

    def _read(self, line: InputLine) -> dict[str, Any]:
        value = read_line(self._settings, line)
        if not isinstance(value, dict):
            raise InvalidInput("the line is not a JSON object")
        if "custom_id" not in value and "body" not in value and item_fields() & value.keys():
            raise InvalidInput(FOR_THE_COMMAND)
        return value

    def _require_new(self, custom_id: str | None, number: int) -> None:
        if custom_id is None:
            return
        digest = hashlib.blake2b(custom_id.encode(), digest_size=DIGEST_BYTES).digest()
        if (before := self._seen.setdefault(digest, number)) != number:
            raise LineRefused("duplicate_custom_id", f"line {before} has the same `custom_id`; give each its own")

    def _take(self, where: str, value: dict[str, Any]) -> tuple[int, int]:
        """Write the items of a line; return the place of its group, and their number."""
        try:
            body = self._form.model_validate(value).body  # type: ignore[attr-defined]
            model = (body.model if "model" in body.model_fields_set else None) or self.model or body.model or ""
            task = self.task_of and self.task_of(model or DEFAULT_ALIAS).result()
            asked = (Predict(task) if task else self._dialect).read(body)
        except ValidationError as error:
            raise InvalidInput(f"{first_fault(error, self._form)}; a body is such as {self._example}") from None
        kind = type(asked.options), vars(asked.options)
        if kind != self._options:
            self._options, self._stored = kind, stored_options(asked.options).decode()
        options = self._stored
        place = self._places.get((model, options), len(self.groups))
        if place < len(self.groups):
            checker = self.groups[place].checker
        else:
            checker = ItemChecker(self._settings, {}, asked.options, refuses=True)
        for item in asked.items:
            checker.require_valid(where, item)
        if place == len(self.groups):
            self._begin(model, options, checker)
        self.groups[place].add(asked.items)
        return place, len(asked.items)

    def _begin(self, model: str, options: str, checker: ItemChecker) -> None:
        if len(self.groups) == MAX_GROUPS:
            sentence = f"the lines before ask for {MAX_GROUPS} models and options; put this into another batch"
            raise LineRefused("too_many_groups", sentence)
        job = new_job_id(cell=self._settings.cell)
        self._places[model, options] = len(self.groups)
        self.groups.append(LineGroup(job, model, options, checker, self._create(job)))
