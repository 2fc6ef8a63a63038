"""CSV in and out for ``corelane batch``: rows become lines of JSON, and results become rows.

Both have a header; fields may hold commas, quotes and line breaks.
"""

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from corelane.cli.jsonl import BYTE_ORDER_MARK, NumberedLine, OutputState, not_ours
from corelane.errors import InvalidInput

#: Columns of a result, with its best answer.
COLUMNS = ("index", "id", "status", "answer", "start", "end", "score", "no_answer_score", "windows", "error", "model")

#: Columns of questions: the fields of an item.
FIELDS = ("id", "question", "context", "context_id")

#: Longest field, in characters.
LONGEST_FIELD = 2**27


class _Counted:
    """Lines of a stream as text, and their size in bytes."""

    def __init__(self, stream: Iterable[bytes]) -> None:
        self._lines = iter(stream)
        self.bytes = 0
        self.last = b""

    def __iter__(self) -> Iterator[str]:
        for number, line in enumerate(self._lines):
            self.bytes += len(line)
            self.last = line
            text = line.removeprefix(BYTE_ORDER_MARK) if number == 0 else line
            try:
                yield text.decode()
            except UnicodeDecodeError as error:
                raise InvalidInput(f"line {number + 1} is not UTF-8 text: {error.reason}") from None


def number_rows(stream: Iterable[bytes]) -> Iterator[NumberedLine]:
    """Yield the rows below the header that are not blank, as lines of JSON; an empty cell is a field left out.

    Raises InvalidInput if a column is missing, or is none of a question.
    """
    lines = _Counted(stream)
    rows = _reader(lines)
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


def write_header() -> bytes:
    """Return the first row of results."""
    return _row(COLUMNS)


def write_row(result: dict[str, Any]) -> bytes:
    """Return a result, given as plain data, as a row."""
    answer, error = result["answer"] or {}, result["error"] or {}
    values = result | {"answer": answer.get("text"), "error": error.get("detail")}
    values |= {name: answer.get(name) for name in ("start", "end", "score")}
    return _row("" if values[name] is None else str(values[name]) for name in COLUMNS)


def read_output_rows(stream: Iterable[bytes]) -> OutputState:
    """Return the state of an existing output of rows; raise InvalidInput if `corelane batch` did not write it."""
    kept = OutputState()
    lines = _Counted(stream)
    rows = _reader(lines)
    try:
        header = next(rows, None)
        if header is None or not lines.last.endswith(b"\n"):
            if not write_header().startswith(lines.last):
                raise not_ours(0)
            return kept
        if tuple(header) != COLUMNS:
            raise not_ours(0)
        kept.size_bytes = lines.bytes
        for row in rows:
            if not lines.last.endswith(b"\n") or len(row) != len(COLUMNS):
                break
            values = dict(zip(COLUMNS, row, strict=True))
            if int(values["index"]) <= kept.index:
                raise not_ours(kept.lines)
            result = {"index": int(values["index"]), "id": values["id"] or None, "status": values["status"]}
            kept.add(result | {"answer": values["start"] or None}, lines.bytes - kept.size_bytes)
    except (csv.Error, ValueError):
        raise not_ours(kept.lines) from None
    return kept


def _reader(lines: Iterable[str]) -> Iterator[list[str]]:
    csv.field_size_limit(LONGEST_FIELD)
    try:
        yield from csv.reader(lines)
    except csv.Error as error:
        raise InvalidInput(f"the CSV cannot be read: {error}") from None


def _row(values: Iterable[str]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue().encode()
