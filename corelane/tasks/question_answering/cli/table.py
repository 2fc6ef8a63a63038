"""Questions and their results as CSV: a header, and a row for each. A row of questions becomes a line of JSON. Pure."""

import csv
import io
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from corelane.cli.item_lines import LineFormat, NumberedLine, Results
from corelane.errors import InvalidInput

#: The CSV columns of a result, with its best answer.
COLUMNS = ("index", "id", "status", "answer", "start", "end", "score", "no_answer_score", "windows", "error", "model")

#: The CSV columns of questions: the fields of an item.
FIELDS = ("id", "question", "context")

#: Longest field of a CSV, in characters.
LONGEST_FIELD = 2**27


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
    needed = ("question", "context")
    wrong = [f"has no column `{name}`" for name in needed if name not in header]
    wrong += [f"has a column {name[:64]!r}, which is no field of a question" for name in header if name not in FIELDS]
    if wrong:
        raise InvalidInput(f"the CSV's first row {wrong[0]}; it names question, context and perhaps id")
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


CSV = LineFormat(number_rows, _read_rows, _write_row, _as_row(COLUMNS))
