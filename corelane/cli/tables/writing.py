"""The forms of tables that are written: chunks of columns, lists of cells or arrays of Arrow, become a file's bytes."""

import csv
import io
from array import array
from collections.abc import Iterable, Mapping
from typing import Any, BinaryIO

import orjson

from corelane.cli.errors import require
from corelane.cli.tables.forms import Contents
from corelane.cli.tables.reading import plain, values_of
from corelane.client.columns import Kind, arrow_array, arrow_type, as_text, vector_fields
from corelane.errors import InvalidInput
from corelane.tasks.task import Task

#: A row group of Parquet ends with the chunk that brings it to so many bytes.
GROUP_BYTES = 8 * 1024 * 1024

#: What each column of the output has: a kind of cells, or the type of Arrow that it has in the input.
Layout = Mapping[str, Kind | Any]

#: Chunks of the output: the cells of some rows by column.
Chunks = Iterable[Mapping[str, Any]]


def check_output(contents: Contents, task: Task, info: Mapping[str, Any]) -> None:
    """Raise an error if a model's results cannot be written in this form, before any is made."""
    if contents is Contents.PARQUET:
        require("tables", "pyarrow")
    if contents is Contents.NPY:
        require("tables", "numpy")
        if len(vector_fields(info.get("output_schema") or task.result.model_json_schema())) != 1:
            raise InvalidInput(f"a result of {task.name} is not one vector: name an output that ends in .parquet")


def write_table(stream: BinaryIO, contents: Contents, layout: Layout, chunks: Chunks, rows: int) -> None:
    """Write a table of so many rows."""
    match contents:
        case Contents.PARQUET:
            _write_parquet(stream, layout, chunks)
        case Contents.NPY:
            _write_npy(stream, layout, chunks, rows)
        case _:
            _write_csv(stream, layout, chunks, "," if contents is Contents.CSV else "\t")


def _write_csv(stream: BinaryIO, layout: Layout, chunks: Chunks, delimiter: str) -> None:
    text = io.TextIOWrapper(stream, "utf-8", newline="")
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    writer.writerow(layout)
    for columns in chunks:
        writer.writerows(zip(*(_texts(kind, columns[name]) for name, kind in layout.items()), strict=True))
    text.detach()


def _texts(kind: Kind | Any, column: Any) -> list[str | None]:
    """Return a column as text; what is no text as JSON."""
    if isinstance(column, list):
        return [as_text(kind, each) for each in column]
    return [
        each if each is None or isinstance(each, str) else orjson.dumps(each, default=plain).decode()
        for each in values_of(column)
    ]


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
