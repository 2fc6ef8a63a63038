"""Where items come from: lines of JSON, or the rows of a table, whose other columns are carried into the output.

A row that cannot be asked has a problem in place of its item, and the rows after it are read.
"""

import csv
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from corelane.cli.errors import require
from corelane.cli.item_lines import BYTE_ORDER_MARK, NumberedLine, number_lines, refuse_others
from corelane.cli.progress import count_ahead
from corelane.cli.tables.forms import Contents, form_of, opened
from corelane.client.columns import ID, Fields, fields_of, item_schema, plain, vector_fields
from corelane.errors import InvalidInput
from corelane.tasks.task import Task

#: Rows that are read at a time: few, as each may be a megabyte.
CHUNK_ROWS = 100

#: Most bytes of a line of a CSV, and characters of a cell: more than the service takes as an item.
LONGEST = 2**24

#: What is said of a row of a CSV that has no end, or none at its line.
UNREADABLE = (
    "has a quote that never ends, or one inside a cell that is not written twice, or more than {:,} characters: mend "
    "the quotes, or cut the row"
)

#: The indexes of some rows, their cells by column (lists, or arrays of Arrow), and what is wrong with some of them.
Chunk = tuple[Sequence[int], Mapping[str, Any], Mapping[int, str]]

#: Finds the fields of an item among the columns of a table, given its name.
Find = Callable[[str, Sequence[str]], Fields]


class Lines:
    """Lines of JSON. Nothing is carried, and the index of a result is its line's."""

    def __init__(self, stream: BinaryIO, task: Task) -> None:
        self._stream, self._task = stream, task

    def lines(self) -> Iterator[NumberedLine]:
        """Yield the lines that are not blank; raise InvalidInput if they are for another command."""
        return refuse_others(self._task, number_lines(self._stream))

    def count(self) -> int | None:
        """Return the number of lines that are not blank; None for a pipe."""
        return count_ahead(self._stream, number_lines)


class ItemTable(ABC):
    """Rows of columns. Each method reads from the beginning; one at a time."""

    def __init__(self, path: Path, types: Mapping[str, Any], fields: Fields) -> None:
        self.name, self.fields = path.name, fields
        #: The columns that are carried, by their names in the output, with `id` first; and their types of Arrow.
        self.carried = {ID: fields.columns[ID]} if ID in fields.columns else {}
        self.carried |= {column: column for column in fields.carried}
        self.types = {name: types[column] for name, column in self.carried.items()}

    @abstractmethod
    def chunks(self, columns: Sequence[str]) -> Iterator[Chunk]:
        """Yield some columns of the rows that are not blank."""

    def count(self) -> int:
        """Return the number of rows that are not blank."""
        return sum(len(indexes) for indexes, *_ in self.chunks([]))

    def value(self, one: str, cell: Any) -> Any:
        """Return a cell as the value of its field; an id becomes text."""
        return str(cell) if one == ID else cell

    def lines(self) -> Iterator[NumberedLine]:
        """Yield the items; an empty cell is left out."""
        columns = self.fields.columns
        for indexes, found, problems in self.chunks([*columns.values()]):
            # Text that is not UTF-8 keeps its bytes, and fails its own row where it becomes JSON.
            read = {one: values_of(found[column], "surrogateescape") for one, column in columns.items()}
            for at, index in enumerate(indexes):
                cells = {one: values[at] for one, values in read.items() if values[at] not in (None, "")}
                text, problem = b"", problems.get(index, "")
                try:
                    text = orjson.dumps({one: self.value(one, each) for one, each in cells.items()}, default=plain)
                except TypeError as error:
                    problem = problem or f"cannot be written as JSON: {error}"
                yield NumberedLine(index, text, f"row {index + 1} of {self.name}", problem)


class CsvTable(ItemTable):
    """A CSV or TSV in UTF-8, whose first row names its columns."""

    def __init__(self, stream: BinaryIO, path: Path, find: Find, delimiter: str) -> None:
        csv.field_size_limit(LONGEST)
        self._stream, self._delimiter, self._header = stream, delimiter, list[str]()
        self._begin = len(BYTE_ORDER_MARK) if stream.read(len(BYTE_ORDER_MARK)) == BYTE_ORDER_MARK else 0
        _, first, problem = next(self._rows(), (0, [], "is not there"))
        if problem:
            raise InvalidInput(f"{path}: the row that names its columns {problem}")
        self._header, self._begin = [name.strip() for name in first], stream.tell()
        super().__init__(path, dict.fromkeys(self._header), find(path.name, self._header))

    def value(self, one: str, cell: str) -> Any:
        """Return the text of a cell, or what it means as JSON if the field takes no text."""
        try:
            return cell if one in self.fields.texts else orjson.loads(cell)
        except orjson.JSONDecodeError:
            return cell

    def chunks(self, columns: Sequence[str]) -> Iterator[Chunk]:
        """Yield some columns as lists; cells that are not there are None."""
        places, rows = {column: self._header.index(column) for column in columns}, self._rows()
        while chunk := list(islice(rows, CHUNK_ROWS)):
            found = {name: [row[at] if at < len(row) else None for _, row, _ in chunk] for name, at in places.items()}
            yield [index for index, _, _ in chunk], found, {index: problem for index, _, problem in chunk if problem}

    def _rows(self) -> Iterator[tuple[int, list[str], str]]:
        """Yield the place of each row that is not blank, its cells, and what is wrong with it.

        After a row that cannot be read, reading goes on at the line after its first.
        """
        self._stream.seek(self._begin)
        for index in count():
            begin, problem, self._is_text = self._stream.tell(), "", True
            try:
                row = next(csv.reader(self._texts(), delimiter=self._delimiter, strict=True))
            except StopIteration:
                return
            except csv.Error:
                row, problem = [], UNREADABLE.format(LONGEST)
                self._stream.seek(begin)
                while (piece := self._stream.readline(LONGEST)) and not piece.endswith(b"\n"):
                    pass
            if not problem and not self._is_text:
                problem = "is not text in UTF-8: save the table in UTF-8"
            elif self._header and len(row) > len(self._header):
                problem = f"has {len(row)} cells, for {len(self._header)} columns: quote a cell that holds a separator"
            if row or problem:
                yield index, row, problem

    def _texts(self) -> Iterator[str]:
        while line := self._stream.readline(LONGEST + 1):
            if len(line) > LONGEST:
                raise csv.Error
            try:
                yield line.decode()
            except UnicodeDecodeError:
                self._is_text = False
                yield line.decode(errors="replace")


class ParquetTable(ItemTable):
    """A Parquet file, read some pages at a time."""

    def __init__(self, stream: BinaryIO, path: Path, find: Find) -> None:
        require("tables", "pyarrow")
        from pyarrow import ArrowException
        from pyarrow.parquet import ParquetFile

        self._failures = (ArrowException, OSError)
        try:
            self._file = ParquetFile(stream, pre_buffer=False, buffer_size=2**20)
        except self._failures as error:
            raise InvalidInput(f"{path} is not whole: {error}. Write it again") from None
        schema = self._file.schema_arrow
        super().__init__(path, {each.name: each.type for each in schema}, find(path.name, schema.names))

    def chunks(self, columns: Sequence[str]) -> Iterator[Chunk]:
        """Yield some columns as arrays of Arrow."""
        first = 0
        try:
            for batch in self._file.iter_batches(CHUNK_ROWS, columns=[*columns]):
                yield range(first, first + batch.num_rows), {name: batch.column(name) for name in columns}, {}
                first += batch.num_rows
        except self._failures as error:
            raise InvalidInput(f"{self.name} is damaged after row {first}: {error}. Write it again") from None


class NpyTable(ItemTable):
    """Vectors of NumPy: each row is the one field of an item that is a list of numbers."""

    def __init__(self, stream: BinaryIO, path: Path, task: Task, info: Mapping[str, Any]) -> None:
        require("tables", "numpy")
        import numpy as np

        schema = item_schema(task, info)
        found = vector_fields(schema)
        if len(found) != 1 or {*schema.get("required", ())} - {*found}:
            raise InvalidInput(f"{path} holds vectors, and an item of {task.name} here is not one: name a table")
        super().__init__(path, {}, Fields({found[0]: "vector"}, (), frozenset()))
        try:
            self._vectors = np.load(stream.name, mmap_mode="r")
        except (ValueError, EOFError) as error:
            raise InvalidInput(f"{path} is not whole: {error}. Write it again") from None
        if self._vectors.ndim != 2 or self._vectors.dtype.kind not in "fiu":
            shape = self._vectors.shape
            raise InvalidInput(f"{path} holds {self._vectors.dtype} of the shape {shape}: rows of numbers are wanted")

    def chunks(self, columns: Sequence[str]) -> Iterator[Chunk]:
        """Yield the vectors as lists, if they are wanted."""
        for first in range(0, len(self._vectors), CHUNK_ROWS):
            found = self._vectors[first : first + CHUNK_ROWS]
            yield range(first, first + len(found)), {name: found.tolist() for name in columns}, {}


#: What items come from.
Source = Lines | ItemTable


@contextmanager
def open_source(path: Path, task: Task, info: Mapping[str, Any], mapped: Sequence[str]) -> Iterator[Source]:
    """Open the items of a file for one model, which ``info`` describes; ``mapped`` has FIELD=COLUMN."""
    contents = form_of(path).contents
    if wrong := [each for each in mapped if not all(each.partition("="))]:
        raise InvalidInput(f"--map {wrong[0]}: it is FIELD=COLUMN")
    if mapped and contents in (Contents.LINES, Contents.NPY):
        raise InvalidInput(f"--map names columns of a table, and {path} has none")
    columns = {one: column for one, _, column in (each.partition("=") for each in mapped)}
    find = partial(fields_of, task=task, info=info, mapped=columns)
    with opened(path) as stream:
        match contents:
            case Contents.LINES:
                yield Lines(stream, task)
            case Contents.PARQUET:
                yield ParquetTable(stream, path, find)
            case Contents.NPY:
                yield NpyTable(stream, path, task, info)
            case _:
                yield CsvTable(stream, path, find, "," if contents is Contents.CSV else "\t")


def values_of(column: Any, errors: str = "replace") -> list[Any]:
    """Return a column, a list or an array of Arrow, as plain values. Times become text: some do not fit Python's."""
    if isinstance(column, list):
        return column
    import pyarrow as pa

    if pa.types.is_temporal(column.type):
        column = column.cast(pa.string())
    try:
        values: list[Any] = column.to_pylist()
    except UnicodeDecodeError:
        values = [each and each.decode(errors=errors) for each in column.cast(pa.binary()).to_pylist()]
    return values
