"""The lines of a batch's input: read, checked and grouped. Pure; files are iterators of bytes here.

Every line that is not blank has a number, from 1, and exactly one outcome: the result of its question, or an error. No
line, whatever it holds, harms another.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
from pydantic import ValidationError

from corelane.domain.batches import BatchLine
from corelane.domain.contexts import Known
from corelane.domain.dispatch import Estimator, Row, estimate_tokens, item_row
from corelane.domain.jobs import JobHead, Options, Priority
from corelane.errors import TooLarge, UnknownContext
from corelane.errors.sentences import first_fault
from corelane.settings import Settings
from corelane.submitting.items import id_of, no_such
from corelane.submitting.large_bodies import load
from corelane.submitting.lines import InputLine, LineCutter
from corelane.submitting.submitter import check_item

#: Different models and options in one batch; each becomes a job.
MAX_GROUPS = 32

#: Bytes of a custom_id's digest: enough that no two of a billion are the same by chance.
DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class GoodLine:
    """A question that can be asked: of a model under options (JSON), as a row of a job's items."""

    number: int
    custom_id: str
    model: str
    options: str
    row: Row
    tokens: int


@dataclass(frozen=True, slots=True)
class BadLine:
    """An invalid line, with its custom_id if that could be read."""

    number: int
    custom_id: str | None
    code: str
    message: str


def read_lines(chunks: Iterable[bytes], most_bytes: int) -> Iterator[InputLine]:
    """Yield the lines of a file that comes in chunks of any size; lines that are too long are not held in memory."""
    cutter = LineCutter(most_bytes)
    for chunk in chunks:
        yield from cutter.feed(chunk)
    yield from cutter.finish()


#: The error of a line in the format of the other command.
FOR_THE_COMMAND = (
    "this is a line for `corelane batch`; lines of a batch have `custom_id`, `method`, `url` and a question in `body`"
)


class LineChecker:
    """Checks the lines of one file, in their order."""

    def __init__(self, settings: Settings, known: Mapping[str, Known] | None = None) -> None:
        """``known`` are the stored contexts that lines may name, by their ids; more may come."""
        self._settings = settings
        self._known = known if known is not None else {}
        self._seen: dict[bytes, int] = {}

    def check(self, line: InputLine) -> GoodLine | BadLine:
        """Return the question of a line, or its error."""
        if line.text is None:
            return BadLine(
                line.number,
                None,
                TooLarge.code,
                f"the line has more than {self._settings.max_body_bytes:,} bytes; shorten it, or have the operator "
                "raise CORELANE_MAX_BODY_BYTES",
            )
        try:
            value = load(line.text)
        except orjson.JSONDecodeError as error:
            return BadLine(line.number, None, "invalid_input", f"the line is not JSON in UTF-8: {error.msg}")
        except TooLarge as error:
            return BadLine(line.number, None, error.code, error.detail)
        if not isinstance(value, dict):
            return BadLine(line.number, None, "invalid_input", "the line is not a JSON object")
        if "question" in value and not {"custom_id", "body"} & value.keys():
            return BadLine(line.number, None, "invalid_input", FOR_THE_COMMAND)
        custom_id = id_of(value, "custom_id") or None
        if custom_id is not None and (before := self._seen.setdefault(_digest(custom_id), line.number)) != line.number:
            return BadLine(
                line.number,
                custom_id,
                "duplicate_custom_id",
                f"line {before} has the same `custom_id`; give each its own",
            )
        return self._check(line.number, custom_id, value)

    def _check(self, number: int, custom_id: str | None, value: dict[str, Any]) -> GoodLine | BadLine:
        try:
            parsed = BatchLine.model_validate(value)
            check_item(self._settings, f"line {number}", parsed.body.item)
        except ValidationError as error:
            return BadLine(number, custom_id, "invalid_input", first_fault(error))
        except TooLarge as error:
            return BadLine(number, custom_id, error.code, error.detail)
        body, row = parsed.body, item_row(parsed.body.item, {})
        if body.context_id is not None:
            if body.context_id not in self._known:
                return BadLine(number, custom_id, UnknownContext.code, no_such(body.context_id))
            tokens = Estimator({}, body.options.doc_stride, self._known).tokens(body.item)
        else:
            tokens = estimate_tokens(body.question, body.context or "", body.options.doc_stride)
        return GoodLine(number, parsed.custom_id, body.model, body.options.model_dump_json(), row, tokens)


@dataclass(frozen=True, slots=True)
class PlannedLine:
    """The outcome planned for a line: the next result of a group, or an error (code and sentence)."""

    number: int
    custom_id: str | None
    group: int | None
    error: tuple[str, str] | None = None

    @classmethod
    def decode(cls, line: bytes) -> "PlannedLine":
        """Read a planned line back."""
        number, custom_id, group, error = orjson.loads(line)
        return cls(number, custom_id, group, None if error is None else (error[0], error[1]))

    def encode(self) -> bytes:
        """Return the text that is written to the plan."""
        return orjson.dumps((self.number, self.custom_id, self.group, self.error), option=orjson.OPT_APPEND_NEWLINE)


class Sorter:
    """Groups lines by model and options, and plans the outcome of each line."""

    def __init__(self, checker: LineChecker) -> None:
        self._checker = checker
        #: Model and options of each group, in the order of their first lines.
        self.groups: list[tuple[str, str]] = []
        self._places: dict[tuple[str, str], int] = {}

    def sort(self, line: InputLine) -> tuple[PlannedLine, GoodLine | None]:
        """Return the plan of a line, and its question if it has one."""
        checked = self._checker.check(line)
        if isinstance(checked, BadLine):
            return PlannedLine(line.number, checked.custom_id, None, (checked.code, checked.message)), None
        asked = (checked.model, checked.options)
        place = self._places.get(asked)
        if place is None:
            if len(self.groups) == MAX_GROUPS:
                sentence = f"the lines before ask for {MAX_GROUPS} models and options; put this into another batch"
                return PlannedLine(line.number, checked.custom_id, None, ("too_many_groups", sentence)), None
            place = self._places[asked] = len(self.groups)
            self.groups.append(asked)
        return PlannedLine(line.number, checked.custom_id, place), checked


def group_head(model: str, options: str, expires_in_s: float) -> JobHead:
    """Return the head of the job that answers a group's lines."""
    its_options = Options.model_validate_json(options)
    return JobHead(model=model, options=its_options, priority=Priority.LOW, expires_in_s=expires_in_s)


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES).digest()
