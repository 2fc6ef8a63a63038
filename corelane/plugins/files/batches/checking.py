"""Read and check the lines of a batch's input, and sort them into groups.

Every line that is not blank has a number, from 1, and exactly one outcome: the reply to its body, or an error. A bad
line never affects another. The batch's endpoint is the dialect of its lines.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import orjson
from pydantic import ValidationError

from corelane.domain.batches import BatchError
from corelane.domain.jobs import Item, JobHead, Priority
from corelane.errors import InvalidInput, TooLarge
from corelane.errors.sentences import first_fault
from corelane.plugins.files.settings import FilesFields
from corelane.settings import Settings
from corelane.submitting.items import id_of, read_line
from corelane.submitting.lines import InputLine, cut_lines
from corelane.submitting.ndjson import item_fields
from corelane.submitting.submitter import Submitter
from corelane.tasks.dialects import line_form
from corelane.tasks.estimating import Estimator
from corelane.tasks.forms import forms
from corelane.tasks.registry import DIALECTS, parse_options, stored_options, task_named

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
class GoodLine:
    """A line that can be asked: its model (empty if it names none), its options (JSON), its items with their tokens."""

    model: str
    options: str
    items: Sequence[tuple[Item, int]]


@dataclass(frozen=True, slots=True)
class PlannedLine:
    """The outcome planned for a line: the next results of a group, or an error (code and sentence)."""

    number: int
    custom_id: str | None
    group: int | None
    error: tuple[str, str] | None = None
    #: Number of its items.
    items: int = 1

    @classmethod
    def decode(cls, line: bytes) -> "PlannedLine":
        """Read a planned line from the plan."""
        number, custom_id, group, error, *items = orjson.loads(line)
        return cls(number, custom_id, group, None if error is None else (error[0], error[1]), *items)

    def encode(self) -> bytes:
        """Return the line as text for the plan."""
        # Keepers of earlier releases know lines of one item only.
        items = () if self.items == 1 else (self.items,)
        planned = (self.number, self.custom_id, self.group, self.error, *items)
        return orjson.dumps(planned, option=orjson.OPT_APPEND_NEWLINE)


#: The plan of a line, and what it asks if it can be asked.
Sorted = tuple[PlannedLine, GoodLine | None]


class LineRefused(Exception):
    """A line cannot be asked, for a reason that applies only to lines of batches."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code, self.detail = code, detail


class Sorter:
    """Checks the lines of one file in their order, groups them by model and options, and plans each one's outcome."""

    def __init__(self, settings: Settings, endpoint: str) -> None:
        self._settings, self._most = settings, settings.of(FilesFields).max_file_lines
        self._dialect = DIALECTS[endpoint]
        self._form, self._example = line_form(self._dialect), orjson.dumps(dict(self._dialect.example)).decode()
        #: Model and options of each group, in the order of their first lines.
        self.groups: list[tuple[str, str]] = []
        #: The number of lines read, the number of lines that cannot be asked, and the errors of the first of them.
        self.lines = self.bad = 0
        #: The number of items of all lines. OpenAI bounds it as it does the number of lines.
        self.items = 0
        self.errors: list[BatchError] = []
        self._places: dict[tuple[str, str], int] = {}
        self._seen: dict[bytes, int] = {}

    async def blocks(self, content: Iterable[bytes]) -> AsyncIterator[list[Sorted]]:
        """Yield a file's lines in blocks, up to a batch's limit."""
        lines = cut_lines(content, self._settings.max_body_bytes)
        while max(self.lines, self.items) <= self._most and (
            read := await asyncio.to_thread(lambda: list(islice(lines, BLOCK_LINES)))
        ):
            yield await asyncio.to_thread(self._sort_all, read)

    @property
    def refusal(self) -> tuple[str, str] | None:
        """Return why the file is refused as a whole, even if its lines are good: a code and a sentence."""
        if self.lines > self._most:
            return "too_many_lines", f"the file has more than {self._most:,} lines; send several batches"
        if self.items > self._most:
            return "too_many_inputs", f"the lines have more than {self._most:,} inputs; send several batches"
        return None if self.lines else ("empty_file", "the file has no lines")

    def note_error(self, code: str, message: str, line: int | None = None) -> None:
        """List an error, if there is room for it."""
        if len(self.errors) < MAX_ERRORS:
            self.errors.append(BatchError(code=code, message=message, line=line))

    def _sort_all(self, lines: list[InputLine]) -> list[Sorted]:
        found = [self.sort(line) for line in lines]
        self.lines += len(found)
        for line, good in found:
            self.items += line.items
            if good is None:
                self.bad += 1
                self.note_error(*(line.error or ("internal", "")), line.number)
        return found

    def sort(self, line: InputLine) -> Sorted:
        """Return the plan of a line, and what it asks if it can be asked."""
        custom_id = None
        try:
            value = self._read(line)
            custom_id = id_of(value, "custom_id") or None
            self._require_new(custom_id, line.number)
            good = self._check(line.number, value)
            return PlannedLine(line.number, custom_id, self._place(good), items=len(good.items)), good
        except (LineRefused, InvalidInput, TooLarge) as error:
            return PlannedLine(line.number, custom_id, None, (error.code, error.detail)), None

    def _read(self, line: InputLine) -> dict[str, Any]:
        value = read_line(self._settings, line.number, line.text)
        if not isinstance(value, dict):
            raise InvalidInput("the line is not a JSON object")
        if item_fields() & value.keys() and not {"custom_id", "body"} & value.keys():
            raise InvalidInput(FOR_THE_COMMAND)
        return value

    def _require_new(self, custom_id: str | None, number: int) -> None:
        if custom_id is None:
            return
        digest = hashlib.blake2b(custom_id.encode(), digest_size=DIGEST_BYTES).digest()
        if (before := self._seen.setdefault(digest, number)) != number:
            raise LineRefused("duplicate_custom_id", f"line {before} has the same `custom_id`; give each its own")

    def _check(self, number: int, value: dict[str, Any]) -> GoodLine:
        try:
            body = self._form.model_validate(value).body  # type: ignore[attr-defined]
            asked = self._dialect.read(body)
        except ValidationError as error:
            raise InvalidInput(f"{first_fault(error, self._form)}; a body is such as {self._example}") from None
        task = task_named(asked.options.task)
        for item in asked.items:
            task.check(self._settings, f"line {number}: ", item)
        estimator = Estimator({}, asked.options)
        items = [(item, estimator.tokens(item)) for item in asked.items]
        return GoodLine(body.model or "", stored_options(asked.options).decode(), items)

    def _place(self, line: GoodLine) -> int:
        """Return the group of a line."""
        asked = (line.model, line.options)
        if asked not in self._places:
            if len(self.groups) == MAX_GROUPS:
                sentence = f"the lines before ask for {MAX_GROUPS} models and options; put this into another batch"
                raise LineRefused("too_many_groups", sentence)
            self._places[asked] = len(self.groups)
            self.groups.append(asked)
        return self._places[asked]


async def group_head(submitter: Submitter, model: str, options: str, expires_in_s: float) -> JobHead:
    """Return the head of the job for a group's lines."""
    parsed = parse_options(options.encode())
    model = model or await submitter.tasks.default_of(parsed.task)
    form = forms(task_named(parsed.task)).head
    return form(model=model, options=parsed, priority=Priority.LOW, expires_in_s=expires_in_s)
