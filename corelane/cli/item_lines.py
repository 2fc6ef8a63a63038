"""The input and output of ``corelane run`` and ``batch``, line by line, and the place where an output resumes. Pure.

An item follows the rules of its task for items of a job. Blank lines are skipped. A line that cannot be sent gives a
failed result in its place, with its id if that can be read.

An output is accepted as one of these commands' own if every complete line is a result and the indexes rise. An
incomplete last line is dropped only if it begins like a result.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import orjson
from pydantic import ValidationError

from corelane.domain.jobs import DEFAULT_TASK, EarlierIds, Item, JobStatus, Result, as_text, no_text, same_id
from corelane.domain.wire import with_few_unknown
from corelane.errors import InvalidInput
from corelane.errors.sentences import first_fault
from corelane.tasks.registry import TASKS
from corelane.tasks.results import failed_result, model_result, with_place
from corelane.tasks.task import Task

#: The beginning of every line of an output.
LINE_HEAD = b'{"index":'

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class NumberedLine:
    """One line of the input that is not blank: its position among all lines, and its text.

    A row of a table that cannot be read has a problem in place of a text.
    """

    index: int
    text: bytes
    place: str = ""
    problem: str = ""

    @property
    def called(self) -> str:
        """What sentences call the line: counted from 1."""
        return self.place or f"line {self.index + 1}"


@dataclass(frozen=True, slots=True)
class ParsedLine:
    """A parsed line: an item, or the reason why it is none."""

    index: int
    id: str | None
    item: Item | None
    problem: str = ""
    #: What sentences call the line.
    called: str = ""


@dataclass(slots=True)
class OutputState:
    """The content of an output: counts of lines, failures and empty results, the last line, and the size."""

    lines: int = 0
    failed: int = 0
    empty: int = 0
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
        # Behind index, id and status stands the output of its task.
        self.empty += not has_failed and next(islice(result.values(), 3, None)) is None


def read_line(task: Task, raw: NumberedLine, ids: EarlierIds | None = None) -> ParsedLine:
    """Parse a line; a problem names its line, counted from 1. ``ids``, if given, are those of the lines before."""

    def problem(text: str, item_id: object = None) -> ParsedLine:
        kept_id = item_id if isinstance(item_id, str) else None
        return ParsedLine(raw.index, kept_id, None, f"{raw.called}{text}")

    if raw.problem:
        return problem(f" {raw.problem}")
    try:
        value = orjson.loads(raw.text)
    except orjson.JSONDecodeError as error:
        return problem(f" is not JSON: {error.msg} (column {error.colno})")
    if not isinstance(value, dict):
        return problem(" is not a JSON object")
    try:
        item = task.item.model_validate(with_few_unknown(task.item, value))
    except ValidationError as error:
        return problem(f": {first_fault(error, task.item)}", as_text(value.get("id")))
    *_, text_id = task.parts(item)
    if text_id is not None:
        return problem(f": {no_text(text_id)}", item.id)
    if ids and item.id is not None and (before := ids.first(item.id, raw.called)) is not None:
        return problem(f" {same_id(item.id, before)}", item.id)
    return ParsedLine(raw.index, item.id, item, called=raw.called)


def command_for(text: bytes) -> str:
    """Return the command for this line, `batch`, `batches` or `run`; an empty string for none of them."""
    try:
        value = orjson.loads(text.removeprefix(BYTE_ORDER_MARK))
    except orjson.JSONDecodeError:
        return ""
    if not isinstance(value, dict) or "custom_id" in value:
        return "batches" if isinstance(value, dict) and "body" in value else ""
    needed = {
        task: {name for name, field in task.item.model_fields.items() if field.is_required()} for task in TASKS.values()
    }
    like = [task for task, names in needed.items() if names and names <= value.keys()]
    return "batch" if TASKS[DEFAULT_TASK] in like else "run" if like else ""


def refuse_others(task: Task, lines: Iterator[NumberedLine]) -> Iterator[NumberedLine]:
    """Yield the lines unchanged; raise InvalidInput if the first is for another command."""
    first = next(lines, None)
    if first is None:
        return iter(())
    other = command_for(first.text)
    if other == "batches":
        raise InvalidInput(
            "this is a file for `corelane batches` (its lines have custom_id and body): `corelane files upload FILE`, "
            "then `corelane batches create ID`"
        )
    if other == "run" and task is TASKS[DEFAULT_TASK]:
        raise InvalidInput(f"these are no items of {task.name}: give them to a model by `corelane run MODEL FILE`")
    cells = first.text.replace(b'"', b"").decode(errors="replace").strip().split(",")
    if len(cells) > 1 and task.item.model_fields.keys() >= set(cells):
        raise InvalidInput("the first line is the header of a table: name it by the ending .csv")
    return chain([first], lines)


def results_of(
    task: Task, lines: Iterable[ParsedLine], ask: Callable[[Iterator[Item]], Generator[Result, None, None]]
) -> Generator[Result, None, None]:
    """Yield the result of every line, in order; only lines with an item are asked."""
    pending: deque[ParsedLine] = deque()

    def refused(line: ParsedLine) -> Result:
        return model_result(failed_result(task.name, line.index, line.id, InvalidInput.code, line.problem), None)

    def items() -> Iterator[Item]:
        for line in lines:
            pending.append(line)
            if line.item is not None:
                yield line.item

    with closing(ask(items())) as results:
        for result in results:
            while pending[0].item is None:
                yield refused(pending.popleft())
            line = pending.popleft()
            error = with_place(result.error, line.called)
            yield result.model_copy(update={"index": line.index, "id": line.id, "error": error})
    yield from map(refused, pending)


def read_output(stream: Iterable[bytes]) -> OutputState:
    """Return the state of an existing output; raise InvalidInput if no run of this command wrote it."""
    kept = OutputState()
    try:
        for text in stream:
            if text.endswith(b"\n"):
                if (result := orjson.loads(text))["index"] <= kept.index:
                    raise ValueError("indexes rise")
                kept.add(result, len(text))
            elif not (text.startswith(LINE_HEAD) or LINE_HEAD.startswith(text)):
                raise ValueError("not a torn line of ours")
    except (ValueError, KeyError, TypeError):
        raise InvalidInput(
            f"the output exists and line {kept.lines + 1} of it is not a result of such a run; "
            "name another file, or drop it with --overwrite"
        ) from None
    return kept


def skip_answered(
    task: Task, lines: Iterator[NumberedLine], kept: OutputState, first: int | None = None
) -> list[NumberedLine]:
    """Skip the lines that are answered. Return those after the first ``first`` lines: they are asked again.

    Raises InvalidInput if the last skipped line is not the one that the output ends with.
    """
    again: list[NumberedLine] = []
    count, last = 0, None
    for count, last in enumerate(islice(lines, kept.lines), 1):
        if first is not None and count > first:
            again.append(last)
    end = (-1, None) if last is None else (last.index, read_line(task, last).id)
    if (count, *end) != (kept.lines, kept.index, kept.id):
        raise InvalidInput(
            f"the output's last result (index {kept.index}, id {kept.id!r}) is not of line {kept.lines} of this "
            "input; name another file, or drop it with --overwrite"
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
