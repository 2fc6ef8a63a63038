"""The input and output of ``corelane batch``, as lines of JSON or as CSV, and the place where an output resumes. Pure.

A question follows the rules for an item of a job. Blank lines are skipped. A line that cannot be asked gives a failed
result in its place, with its id if that can be read. A CSV has a header, and each row becomes a line of JSON.

An output is accepted as ours if every complete line is a result and the indexes rise. An incomplete last line is
dropped only if it begins like one of ours.
"""

import csv
import io
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import orjson
from pydantic import ValidationError

from corelane.domain.jobs import DEFAULT_TASK, JobStatus, Result, as_text
from corelane.domain.texts import is_text_id, no_text
from corelane.domain.wire import with_few_unknown
from corelane.errors import InvalidInput
from corelane.errors.sentences import first_fault
from corelane.tasks.question_answering.wire import Question
from corelane.tasks.results import model_result
from corelane.tasks.unanswered import failed_result

#: The beginning of every line of an output.
LINE_HEAD = b'{"index":'

BYTE_ORDER_MARK = b"\xef\xbb\xbf"

#: The CSV columns of a result, with its best answer.
COLUMNS = ("index", "id", "status", "answer", "start", "end", "score", "no_answer_score", "windows", "error", "model")

#: The CSV columns of questions: the fields of an item.
FIELDS = ("id", "question", "context", "context_id")

#: Longest field of a CSV, in characters.
LONGEST_FIELD = 2**27

#: The complete results of an output, or None for its header, each with its size in bytes.
Results = Iterator[tuple[dict[str, Any] | None, int]]


@dataclass(frozen=True, slots=True)
class NumberedLine:
    """One line of the input that is not blank: its position among all lines, and its text."""

    index: int
    text: bytes


@dataclass(frozen=True, slots=True)
class QuestionLine:
    """A parsed line: an item to ask, or the reason why it cannot be asked."""

    index: int
    id: str | None
    item: Question | None
    problem: str = ""


@dataclass(slots=True)
class OutputState:
    """The content of an output: counts of lines, failures and empty answers, the last line, and the size."""

    lines: int = 0
    failed: int = 0
    without_answer: int = 0
    index: int = -1
    id: str | None = None
    size_bytes: int = 0

    def add(self, result: dict[str, Any], size_bytes: int) -> None:
        """Count one more line."""
        self.index, self.id = result["index"], result["id"]
        self.lines += 1
        self.size_bytes += size_bytes
        has_failed = result["status"] != JobStatus.SUCCEEDED
        self.failed += has_failed
        self.without_answer += not has_failed and result["answer"] is None


@dataclass(frozen=True, slots=True)
class LineFormat:
    """One format of questions and results; ``results`` raises ValueError for an output that is not ours."""

    number: Callable[[Iterable[bytes]], Iterator[NumberedLine]]
    results: Callable[[Iterable[bytes]], Results]
    write: Callable[[dict[str, Any]], bytes]
    header: bytes = b""


def read_line(raw: NumberedLine) -> QuestionLine:
    """Parse a line; a problem names its line, counted from 1."""

    def problem(text: str, item_id: object = None) -> QuestionLine:
        kept_id = item_id if isinstance(item_id, str) else None
        return QuestionLine(raw.index, kept_id, None, f"line {raw.index + 1}{text}")

    try:
        value = orjson.loads(raw.text)
    except orjson.JSONDecodeError as error:
        return problem(f" is not JSON: {error.msg} (column {error.colno})")
    if not isinstance(value, dict):
        return problem(" is not a JSON object")
    try:
        item = Question.model_validate(with_few_unknown(Question, value))
    except ValidationError as error:
        return problem(f": {first_fault(error)}", as_text(value.get("id")))
    if item.context_id is not None and not is_text_id(item.context_id):
        return problem(f": {no_text(item.context_id)}", item.id)
    return QuestionLine(raw.index, item.id, item)


def command_for(text: bytes) -> str:
    """Return the command for this line of questions, `batch` or `batches`; an empty string for neither."""
    try:
        value = orjson.loads(text.removeprefix(BYTE_ORDER_MARK))
    except orjson.JSONDecodeError:
        return ""
    if not isinstance(value, dict) or "custom_id" not in value:
        return "batch" if isinstance(value, dict) and "question" in value else ""
    return "batches" if "body" in value else ""


def refuse_others(lines: Iterator[NumberedLine]) -> Iterator[NumberedLine]:
    """Yield the lines unchanged; raise InvalidInput if the first is for `corelane batches`, or is a table's header."""
    first = next(lines, None)
    if first is None:
        return iter(())
    if command_for(first.text) == "batches":
        raise InvalidInput(
            "this is a file for `corelane batches` (its lines have custom_id and body): `corelane files upload FILE`, "
            "then `corelane batches create ID`"
        )
    if {b"question", b"context"} <= set(first.text.replace(b'"', b"").strip().split(b",")):
        raise InvalidInput("the first line is the header of a table: give --csv")
    return chain([first], lines)


def answer_lines(
    lines: Iterable[QuestionLine], ask: Callable[[Iterator[Question]], Generator[Result, None, None]]
) -> Generator[Result, None, None]:
    """Yield the result of every line, in order; only lines with an item are asked."""
    pending: deque[QuestionLine] = deque()

    def items() -> Iterator[Question]:
        for line in lines:
            pending.append(line)
            if line.item is not None:
                yield line.item

    with closing(ask(items())) as results:
        for result in results:
            while pending[0].item is None:
                yield _refused(pending.popleft())
            line = pending.popleft()
            yield result.model_copy(update={"index": line.index, "id": line.id})
    yield from map(_refused, pending)


def _refused(line: QuestionLine) -> Result:
    return model_result(failed_result(DEFAULT_TASK, line.index, line.id, InvalidInput.code, line.problem), None)


def read_output(stream: Iterable[bytes], form: LineFormat) -> OutputState:
    """Return the state of an existing output; raise InvalidInput if `corelane batch` did not write it."""
    kept = OutputState()
    try:
        for result, size_bytes in form.results(stream):
            if result is None:
                kept.size_bytes += size_bytes
            elif result["index"] <= kept.index:
                raise ValueError("indexes rise")
            else:
                kept.add(result, size_bytes)
    except (ValueError, KeyError, TypeError):
        raise InvalidInput(
            f"the output exists and line {kept.lines + 1} of it is not a result that `corelane batch` wrote; "
            "name another file, or drop it with --overwrite"
        ) from None
    return kept


def skip_answered(lines: Iterator[NumberedLine], kept: OutputState, first: int | None = None) -> list[NumberedLine]:
    """Skip the lines that are answered. Return those after the first ``first`` lines: they are asked again.

    Raises InvalidInput if the last skipped line is not the one that the output ends with.
    """
    again: list[NumberedLine] = []
    count, last = 0, None
    for count, last in enumerate(islice(lines, kept.lines), 1):
        if first is not None and count > first:
            again.append(last)
    end = (-1, None) if last is None else (last.index, read_line(last).id)
    if (count, *end) != (kept.lines, kept.index, kept.id):
        raise InvalidInput(
            f"the output's last result (index {kept.index}, id {kept.id!r}) is not of line {kept.lines} of these "
            "questions; name another file, or drop it with --overwrite"
        )
    return again


def number_lines(stream: Iterable[bytes]) -> Iterator[NumberedLine]:
    """Yield the lines that are not blank."""
    for index, text in enumerate(stream):
        text = text if index else text.removeprefix(BYTE_ORDER_MARK)
        if text.strip():
            yield NumberedLine(index, text)


def write_line(result: dict[str, Any]) -> bytes:
    """Return a result, given as plain data, as a line of the output."""
    return orjson.dumps(result, option=orjson.OPT_APPEND_NEWLINE)


def _read_lines(stream: Iterable[bytes]) -> Results:
    for text in stream:
        if text.endswith(b"\n"):
            yield orjson.loads(text), len(text)
        elif not (text.startswith(LINE_HEAD) or LINE_HEAD.startswith(text)):
            raise ValueError("not a torn line of ours")


class _CsvReader:
    """The rows of a CSV, and how many bytes of it have been read."""

    def __init__(self, stream: Iterable[bytes]) -> None:
        csv.field_size_limit(LONGEST_FIELD)
        self._rows = csv.reader(self._texts(stream))
        self.bytes, self.last = 0, b""

    def _texts(self, stream: Iterable[bytes]) -> Iterator[str]:
        for number, self.last in enumerate(stream):
            self.bytes += len(self.last)
            try:
                yield self.last.decode("utf-8" if number else "utf-8-sig")
            except UnicodeDecodeError as error:
                raise InvalidInput(f"line {number + 1} is not UTF-8 text: {error.reason}") from None

    def __iter__(self) -> Iterator[list[str]]:
        try:
            yield from self._rows
        except csv.Error as error:
            raise InvalidInput(f"the CSV cannot be read: {error}") from None


def number_rows(stream: Iterable[bytes]) -> Iterator[NumberedLine]:
    """Yield the non-blank rows below the header as lines of JSON; an empty cell is left out."""
    rows = iter(_CsvReader(stream))
    header = [name.strip() for name in next(rows, [])]
    needed = ("question", "context_id" if "context_id" in header else "context")
    wrong = [f"has no column `{name}`" for name in needed if name not in header]
    wrong += [f"has a column {name[:64]!r}, which is no field of a question" for name in header if name not in FIELDS]
    if wrong:
        raise InvalidInput(f"the CSV's first row {wrong[0]}; it names question, context (or context_id) and perhaps id")
    for index, row in enumerate(rows):
        if row:
            fields = {name: text for name, text in zip(header, row, strict=False) if text}
            yield NumberedLine(index, orjson.dumps(fields))


def _write_row(result: dict[str, Any]) -> bytes:
    answer, error = result["answer"] or {}, result["error"] or {}
    values = result | {"answer": answer.get("text"), "error": error.get("detail")}
    values |= {name: answer.get(name) for name in ("start", "end", "score")}
    return _as_row(values[name] for name in COLUMNS)


def _read_rows(stream: Iterable[bytes]) -> Results:
    reader = _CsvReader(stream)
    rows = iter(reader)
    header = next(rows, None)
    if not reader.last.endswith(b"\n"):
        if not CSV.header.startswith(reader.last):
            raise ValueError("not a torn header of ours")
        return
    if header != [*COLUMNS]:
        raise ValueError("not our header")
    yield None, (before := reader.bytes)
    for row in rows:
        if not reader.last.endswith(b"\n") or len(row) != len(COLUMNS):
            return
        values = dict(zip(COLUMNS, row, strict=True))
        result = {"index": int(values["index"]), "id": values["id"] or None, "status": values["status"]}
        yield result | {"answer": values["start"] or None}, reader.bytes - before
        before = reader.bytes


def _as_row(values: Iterable[object]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue().encode()


JSON_LINES = LineFormat(number_lines, _read_lines, write_line)
CSV = LineFormat(number_rows, _read_rows, _write_row, _as_row(COLUMNS))
