"""Lines of questions in, lines of results out, and where an interrupted output is to be gone on with. Mostly pure.

A question is a JSON object with ``question``, ``context`` and perhaps ``id``; other keys are ignored, blank lines are
passed over. A line that cannot be asked becomes a failed result in its place. An output is ours if every whole line is
a result and their indexes rise; a torn last line is dropped only if it begins as ours do.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import orjson
from pydantic import ValidationError

from corelane.cli.words import fault
from corelane.domain.jobs import Item, JobStatus, Result, failed_result
from corelane.errors import InvalidInput

#: What every line of an output begins with.
LINE_HEAD = b'{"index":'

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class RawLine:
    """One line of the input that is not blank: its position, its text, and the offset where it ends."""

    index: int
    text: bytes
    end_bytes: int


@dataclass(frozen=True, slots=True)
class Line:
    """A line as understood: an item to ask, or the reason why it cannot be asked."""

    index: int
    end_bytes: int
    id: str | None
    item: Item | None
    problem: str = ""


@dataclass(slots=True)
class Kept:
    """What an output holds: whole lines, failures and empty answers among them, the last line, the bytes of all."""

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
        if result["status"] != JobStatus.SUCCEEDED:
            self.failed += 1
        elif result["answer"] is None:
            self.without_answer += 1
        self.size_bytes += size_bytes


def number_lines(stream: Iterable[bytes]) -> Iterator[RawLine]:
    """The lines that are not blank, each with its position among all lines."""
    end_bytes = 0
    for index, text in enumerate(stream):
        end_bytes += len(text)
        if index == 0:
            text = text.removeprefix(BYTE_ORDER_MARK)
        if not text.isspace() and text:
            yield RawLine(index, text, end_bytes)


def read_line(raw: RawLine) -> Line:
    """Understand a line; what is wrong with it is told by line number, counted from 1."""
    where = f"line {raw.index + 1}"
    try:
        value = orjson.loads(raw.text)
    except orjson.JSONDecodeError as error:
        return Line(raw.index, raw.end_bytes, None, None, f"{where} is not JSON: {error.msg} (column {error.colno})")
    if not isinstance(value, dict):
        return Line(raw.index, raw.end_bytes, None, None, f"{where} is not a JSON object")
    fields = {name: value[name] for name in ("id", "question", "context") if value.get(name) is not None}
    if "context" not in fields and "question" in fields:
        return Line(raw.index, raw.end_bytes, None, None, f"{where}: context is missing")
    if type(fields.get("id")) is int:
        fields["id"] = str(fields["id"])
    try:
        item = Item.model_validate(fields)
    except ValidationError as error:
        item_id = fields.get("id")
        kept_id = item_id if isinstance(item_id, str) else None
        return Line(raw.index, raw.end_bytes, kept_id, None, f"{where}: {fault(error)}")
    return Line(raw.index, raw.end_bytes, item.id, item)


def shape_of(text: bytes) -> str:
    """Return whom a line of questions is for: `batch` (the command), `batches` (the service), or nobody's."""
    try:
        value = orjson.loads(text.removeprefix(BYTE_ORDER_MARK))
    except orjson.JSONDecodeError:
        return ""
    if not isinstance(value, dict):
        return ""
    if "custom_id" in value and "body" in value:
        return "batches"
    return "batch" if "question" in value and "custom_id" not in value else ""


def refuse_batches(lines: Iterator[RawLine]) -> Iterator[RawLine]:
    """Return the same lines; raise InvalidInput if the first is one for `corelane batches`."""
    first = next(lines, None)
    if first is None:
        return iter(())
    if shape_of(first.text) == "batches":
        raise InvalidInput(
            "this is a file for `corelane batches` (its lines have custom_id and body): `corelane files upload FILE`, "
            "then `corelane batches create ID`"
        )
    return chain([first], lines)


def answer_lines(
    lines: Iterable[Line], ask: Callable[[Iterator[Item]], Generator[Result, None, None]]
) -> Generator[tuple[Line, Result], None, None]:
    """Every line with its result, in order; only lines with an item are asked."""
    pending: deque[Line] = deque()

    def items() -> Iterator[Item]:
        for line in lines:
            pending.append(line)
            if line.item is not None:
                yield line.item

    with closing(ask(items())) as results:
        for result in results:
            while pending[0].item is None:
                yield pending[0], refuse(pending.popleft())
            line = pending.popleft()
            yield line, result.model_copy(update={"index": line.index, "id": line.id})
    for line in pending:
        yield line, refuse(line)


def refuse(line: Line) -> Result:
    """The result of a line that cannot be asked."""
    return Result.model_validate(failed_result(line.index, line.id, InvalidInput.code, line.problem))


def write_line(result: dict[str, Any]) -> bytes:
    """A result, as plain data, as a line of the output."""
    return orjson.dumps(result, option=orjson.OPT_APPEND_NEWLINE)


def read_kept(stream: Iterable[bytes]) -> Kept:
    """What an existing output holds; raises InvalidInput if it is not an output of ours."""
    kept = Kept()
    for text in stream:
        if not text.endswith(b"\n"):
            if not (text.startswith(LINE_HEAD) or LINE_HEAD.startswith(text)):
                raise not_ours(kept.lines)
            break
        try:
            result = orjson.loads(text)
            if result["index"] <= kept.index:
                raise not_ours(kept.lines)
            kept.add(result, len(text))
        except (orjson.JSONDecodeError, KeyError, TypeError):
            raise not_ours(kept.lines) from None
    return kept


def not_ours(lines: int) -> InvalidInput:
    """The error for an output that something else has written."""
    return InvalidInput(
        f"the output exists and line {lines + 1} of it is not a result that `corelane batch` wrote; "
        "name another file, or drop it with --overwrite"
    )


def skip_kept(lines: Iterator[RawLine], kept: Kept, first: int | None = None) -> list[RawLine]:
    """Pass over the lines that are answered; those from the ``first``-th on, which are looked at again, come back.

    Raises InvalidInput if the last of them is not the one the output ends with.
    """
    passed: list[RawLine] = []
    count, last = 0, None
    for raw in islice(lines, kept.lines):
        if first is not None and count >= first:
            passed.append(raw)
        count, last = count + 1, raw
    if last is None:
        fits = kept.lines == 0
    else:
        fits = (count, last.index, read_line(last).id) == (kept.lines, kept.index, kept.id)
    if not fits:
        raise InvalidInput(
            f"the output's last result (index {kept.index}, id {kept.id!r}) is not of line {kept.lines} of these "
            "questions; name another file, or drop it with --overwrite"
        )
    return passed
