"""The results of a run, kept as lines, and the columns of its input beside them: written as one file at the end.

The file gets its name once it is whole, so a command that is killed meanwhile does this again. Memory use is constant.
"""

import csv
import gzip
import io
import os
from array import array
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, cast

import orjson

from corelane.cli.errors import require
from corelane.cli.tables.forms import Contents, form_of
from corelane.cli.tables.reading import CHUNK_ROWS, Lines, Source, values_of
from corelane.client.columns import (
    FIRST,
    ID,
    INDEX,
    LAST,
    Kind,
    arrow_array,
    arrow_type,
    as_text,
    cells,
    plain,
    vector_fields,
    widen,
    without_clash,
)
from corelane.errors import InvalidInput
from corelane.tasks.task import Task

#: A row group of Parquet ends with the chunk that brings it to so many bytes.
GROUP_BYTES = 8 * 1024 * 1024

#: What each column of the output has: a kind of cells, or the type of Arrow that it has in the input.
Layout = Mapping[str, Kind | Any]

#: Chunks of the output: the cells of some rows by column, as lists or arrays of Arrow.
Chunks = Iterable[Mapping[str, Any]]


def check_output(contents: Contents, task: Task, info: Mapping[str, Any]) -> None:
    """Raise an error if a model's results cannot be written in this form, before any is made."""
    if contents is Contents.PARQUET:
        require("tables", "pyarrow")
    if contents is Contents.NPY:
        require("tables", "numpy")
        if len(vector_fields(info.get("output_schema") or task.result.model_json_schema())) != 1:
            raise InvalidInput(f"a result of {task.name} is not one vector: name an output that ends in .parquet")


def join(output: Path, task: Task, results: BinaryIO, source: Source, rows: int) -> None:
    """Write the results and the carried columns of their rows to a file, which then gets its name."""
    form, aside = form_of(output), output.with_name(f"{output.name}.new")
    try:
        with aside.open("wb") as file:
            with cast(BinaryIO, gzip.open(file, "wb")) if form.is_packed else nullcontext(file) as stream:
                if form.contents is Contents.LINES:
                    _join_lines(stream, results, source)
                else:
                    _join_table(stream, form.contents, task, results, source, rows)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(output)
    finally:
        aside.unlink(missing_ok=True)


def _join_lines(stream: BinaryIO, results: BinaryIO, source: Source) -> None:
    for read, carried in _pairs(results, source):
        names = without_clash(carried, read[0])
        columns = {names[name]: values_of(column) for name, column in carried.items() if name != ID}
        for at, result in enumerate(read):
            line = result | {name: column[at] for name, column in columns.items()}
            stream.write(orjson.dumps(line, default=plain, option=orjson.OPT_APPEND_NEWLINE))


def _join_table(stream: BinaryIO, contents: Contents, task: Task, results: BinaryIO, source: Source, rows: int) -> None:
    kinds: dict[str, Kind] = {}
    results.seek(0)
    for line in results:
        widen(kinds, cells(task, orjson.loads(line)))
    columns = {**FIRST, **kinds, **LAST}
    # Ids of a table are in their own type, those of lines are in the results.
    types = {ID: str} if isinstance(source, Lines) else source.types
    names = {ID: ID, **without_clash([name for name in types if name != ID], {INDEX, ID, *columns})}
    layout = {INDEX: int, **{names[name]: kind or str for name, kind in types.items()}, **columns}

    def chunks() -> Iterator[dict[str, Any]]:
        for read, carried in _pairs(results, source):
            found = [cells(task, result) | {INDEX: result[INDEX], ID: result[ID]} for result in read]
            own = {name: [row.get(name) for row in found] for name in (INDEX, ID, *columns)}
            yield own | {names.get(name, name): column for name, column in carried.items()}

    match contents:
        case Contents.PARQUET:
            _write_parquet(stream, layout, chunks())
        case Contents.NPY:
            _write_npy(stream, layout, chunks(), rows)
        case _:
            _write_csv(stream, layout, chunks(), "," if contents is Contents.CSV else "\t")


def _pairs(results: BinaryIO, source: Source) -> Iterator[tuple[list[dict[str, Any]], Mapping[str, Any]]]:
    """Yield some results, and the carried columns of their rows."""
    results.seek(0)
    lines = map(orjson.loads, results)
    if isinstance(source, Lines):
        while read := list(islice(lines, CHUNK_ROWS)):
            yield read, {}
        return
    for indexes, columns, _ in source.chunks([*source.carried.values()]):
        read = list(islice(lines, len(indexes)))
        if [result[INDEX] for result in read] != [*indexes]:
            raise InvalidInput("the input was changed while it was read: put it back, or start over with --overwrite")
        if read:
            yield read, {name: columns[column] for name, column in source.carried.items()}


def _write_csv(stream: BinaryIO, layout: Layout, chunks: Chunks, delimiter: str) -> None:
    text = io.TextIOWrapper(stream, "utf-8", newline="")
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    writer.writerow(layout)
    for columns in chunks:
        writer.writerows(zip(*(_texts(kind, columns[name]) for name, kind in layout.items()), strict=True))
    text.detach()


def _texts(kind: Kind | Any, column: Any) -> list[str | None]:
    """Return a column as text; what is no text as JSON."""
    kind = kind if isinstance(column, list) else str
    return [as_text(kind, each) for each in values_of(column)]


def _write_parquet(stream: BinaryIO, layout: Layout, chunks: Chunks) -> None:
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

    types = {name: kind if isinstance(kind, pa.DataType) else arrow_type(kind) for name, kind in layout.items()}
    schema, group = pa.schema(list(types.items())), list[Any]()
    # Vectors repeat no value, so a dictionary of theirs is of no use.
    texts = [name for name, kind in layout.items() if not isinstance(kind, int)]
    with ParquetWriter(stream, schema, use_dictionary=texts) as writer:
        for columns in chunks:
            found = {name: columns[name] for name in layout}
            made = [arrow_array(layout[name], each) if isinstance(each, list) else each for name, each in found.items()]
            group.append(pa.record_batch(made, schema=schema))
            if sum(batch.nbytes for batch in group) >= GROUP_BYTES:
                writer.write_table(pa.Table.from_batches(group))
                group.clear()
        if group:
            writer.write_table(pa.Table.from_batches(group))


def _write_npy(stream: BinaryIO, layout: Layout, chunks: Chunks, rows: int) -> None:
    """Write the vectors alone, as float32; those of results without one are NaN."""
    from numpy.lib import format as npy

    found = {name: kind for name, kind in layout.items() if isinstance(kind, int)}
    if len(found) > 1 or (rows and not found):
        raise InvalidInput("the results are not one vector each: name an output that ends in .parquet")
    name, length = next(iter(found.items()), ("", 0))
    npy.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": (rows, length)})
    for columns in chunks:
        for each in columns[name]:
            stream.write(array("f", [float("nan")] * length if each is None else each).tobytes())
