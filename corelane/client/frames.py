"""A frame of pandas or polars whose rows are the items of a model, and the results as columns beside it."""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

from corelane.client import endpoints
from corelane.client.columns import FIRST, ID, LAST, Fields, Kind, arrow_array, cells, fields_of, widen, without_clash
from corelane.client.protocol import ServiceProtocol
from corelane.client.steps import Exchange, all_of
from corelane.client.wire import cut_jobs
from corelane.domain.jobs import DEFAULT_TASK, Job, Priority
from corelane.errors import CorelaneError, InvalidInput, SetupError
from corelane.errors.extras import install_command
from corelane.tasks.registry import task_named
from corelane.tasks.results import model_result, with_place

#: Jobs in flight at a time.
JOBS = 4


def run_frame(
    service: ServiceProtocol,
    model: str,
    frame: Any,
    *,
    map: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
    priority: Priority | str = Priority.NORMAL,
) -> Exchange[Any]:
    """Give each row of a DataFrame of pandas or polars to a model; return the frame with its results beside it.

    A column is the field of an item that has its name; ``map`` has other columns by field, as ``{"text": "body"}``.
    Order and index stay. Vectors are float32, in pandas as arrays of NumPy. A row that fails has its reason in
    ``error``. A column of the frame that is called as one of the results is then called ``input_…``. Waits without
    limit, and cancels its jobs if it cannot go on. Needs the extra `tables`.
    """
    if _library(frame) not in ("pandas", "polars"):
        raise InvalidInput(f"run_frame takes a DataFrame of pandas or polars, not a {type(frame).__name__}")
    if find_spec("pyarrow") is None:
        raise SetupError(f"run_frame needs pyarrow: run `{install_command('tables')}`")
    info = yield from service.call(endpoints.get_model(model))
    task = task_named(info.get("task", DEFAULT_TASK))
    fields = fields_of("the frame", [each for each in frame.columns if isinstance(each, str)], task, info, map or {})
    results, kinds = list[dict[str, Any]](), dict[str, Kind]()
    jobs = cut_jobs(_items(frame, fields))
    in_flight = deque[Job]()
    try:
        while True:
            while len(in_flight) < JOBS and (items := next(jobs, None)):
                given = {**task.packed, **(options or {})}
                job = yield from service.submit(
                    items, model=model, options=given, priority=priority, invalid_items="fail"
                )
                in_flight.append(job)
            if not in_flight:
                break
            for result in (yield from all_of(service.results(in_flight[0].id))):
                placed = result.model_copy(update={"error": with_place(result.error, f"row {len(results) + 1}")})
                plain = model_result(placed, in_flight[0].model).model_dump(mode="json")
                results.append(cells(task, plain))
                widen(kinds, results[-1])
            in_flight.popleft()
    except CorelaneError:
        for job in in_flight:
            with suppress(CorelaneError):
                yield from service.call(endpoints.cancel(job.id))
        raise
    columns = {**FIRST, **kinds, **LAST}
    found = {name: arrow_array(kind, [row.get(name) for row in results]) for name, kind in columns.items()}
    return _beside(frame, found)


def _items(frame: Any, fields: Fields) -> Iterator[dict[str, Any]]:
    columns = {one: _values(frame[column]) for one, column in fields.columns.items()}
    for row in zip(*columns.values(), strict=True):
        given = zip(columns, row, strict=True)
        yield {one: str(value) if one == ID else value for one, value in given if value is not None}


def _values(column: Any) -> Iterable[Any]:
    """Return a column's cells as plain values, and None for what is missing."""
    found = column.to_list() if hasattr(column, "to_arrow") else column.astype(object).where(column.notna(), None)
    return (each.tolist() if hasattr(each, "tolist") else each for each in found)


def _beside(frame: Any, columns: Mapping[str, Any]) -> Any:
    """Return a frame with columns of Arrow beside its own."""
    import pyarrow as pa

    table, names = pa.table(dict(columns)), without_clash(frame.columns, columns)
    if _library(frame) == "polars":
        import polars

        return frame.rename(names).hstack(polars.from_arrow(table).get_columns())
    import pandas

    found = table.to_pandas()
    found.index = frame.index
    return pandas.concat([frame.rename(columns=names), found], axis=1)


def _library(frame: Any) -> str:
    return type(frame).__module__.partition(".")[0]
