"""The results of a run, kept as lines, and the columns of its input beside them: written as one file at the end.

The file gets its name once it is whole, so a command that is killed meanwhile does this again. Memory use is constant.
"""

import gzip
import os
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, cast

import orjson

from corelane.cli.tables.forms import Form
from corelane.cli.tables.reading import CHUNK_ROWS, ItemTable, Lines, Source, plain, values_of
from corelane.cli.tables.writing import write_table
from corelane.client.columns import FIRST, ID, INDEX, LAST, Kind, cells, widen, without_clash
from corelane.errors import InvalidInput
from corelane.tasks.task import Task

#: Some results, and the carried columns of their rows.
Pair = tuple[list[dict[str, Any]], Mapping[str, Any]]


def join(output: Path, form: Form, task: Task, results: BinaryIO, source: Source, rows: int) -> None:
    """Write the results and the carried columns of their rows to a file, which then gets its name."""
    aside = output.with_name(f"{output.name}.new")
    try:
        with aside.open("wb") as file:
            with cast(BinaryIO, gzip.open(file, "wb")) if form.is_packed else nullcontext(file) as stream:
                if form.is_table:
                    _join_table(stream, form, task, results, source, rows)
                else:
                    _join_lines(stream, results, source)
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


def _join_table(stream: BinaryIO, form: Form, task: Task, results: BinaryIO, source: Source, rows: int) -> None:
    kinds: dict[str, Kind] = {}
    results.seek(0)
    for line in results:
        widen(kinds, cells(task, orjson.loads(line)))
    columns = {**FIRST, **kinds, **LAST}
    # Ids are those of the input, in their own type; lines of JSON have theirs in the results.
    types = dict(source.types) if isinstance(source, ItemTable) else {ID: str}
    ids = {ID: types.pop(ID) or str} if ID in types else {}
    names = without_clash(types, {INDEX, ID, *columns})
    layout = {INDEX: int, **ids, **{names[name]: kind or str for name, kind in types.items()}, **columns}

    def chunks() -> Iterator[dict[str, Any]]:
        for read, carried in _pairs(results, source):
            found = [cells(task, result) | {INDEX: result[INDEX], ID: result[ID]} for result in read]
            own = {name: [row.get(name) for row in found] for name in (INDEX, ID, *columns)}
            yield own | {names.get(name, name): column for name, column in carried.items()}

    write_table(stream, form.contents, layout, chunks(), rows)


def _pairs(results: BinaryIO, source: Source) -> Iterator[Pair]:
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
