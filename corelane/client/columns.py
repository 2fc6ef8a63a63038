"""Columns of a table as fields of items, and results as columns: their names, their types, and arrays of Arrow.

Only ``arrow_array`` needs pyarrow.
"""

from array import array
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import orjson
from pydantic import ValidationError

from corelane.errors import InvalidInput
from corelane.errors.sentences import first_fault, unknown_name
from corelane.tasks.task import Task

#: What a column holds: cells of one type (object: JSON, None: nothing), or vectors of a length.
Kind = type | int | None

#: Columns that every result has, before and behind those of its task; the place of its row, and the caller's id of it.
FIRST: Mapping[str, Kind] = MappingProxyType({"status": str})
LAST: Mapping[str, Kind] = MappingProxyType({"windows": int, "error": str, "model": str})
INDEX, ID = "index", "id"
FIXED = {INDEX, ID, *FIRST, *LAST}

#: Types of schemas whose values are no text.
NOT_TEXT = {"array", "object", "number", "integer", "boolean"}


@dataclass(frozen=True, slots=True)
class Fields:
    """Which columns of a table are fields of its items, and which are carried into the output."""

    #: The columns by field, `id` among them.
    columns: Mapping[str, str]
    carried: Sequence[str]
    #: Fields whose values are text.
    texts: frozenset[str]


def fields_of(
    name: str, columns: Sequence[str], task: Task, info: Mapping[str, Any], mapped: Mapping[str, str]
) -> Fields:
    """Return which columns of the table ``name`` are the fields of an item; ``mapped`` has other names, by field.

    ``info`` is the model as the service describes it. Raises InvalidInput if no item can be made of the columns.
    """
    schema = item_schema(task, info)
    there = f"{name} has {_listed(columns) or 'no columns'}"
    if twice := sorted({each for each in columns if columns.count(each) > 1}):
        raise InvalidInput(f"{name} has the column {twice[0]!r} twice: rename one of them")
    known = {ID: {}, **(schema["properties"] or {each: {} for each in [*columns, *mapped]})}
    for one, column in mapped.items():
        if one not in known:
            raise InvalidInput(f"--map {one}={column}: {unknown_name('field', one, known)}")
        if column not in columns:
            raise InvalidInput(f"--map {one}={column}: {there}")
    rest = [each for each in columns if each not in mapped.values()]
    found = {one: mapped.get(one, one) for one in known if one in mapped or one in rest}
    example = {one: value for one, value in task.example.items() if one in found}
    lacking = [one for one in schema.get("required", ()) if one not in found]
    why = f"it needs {_listed(lacking or known.keys() - {ID})}" if lacking or not found.keys() - {ID} else ""
    if not why and not info.get("input_schema"):
        try:
            task.item.model_validate(example)
        except ValidationError as error:
            why, lacking = first_fault(error, task.item), [one for one in task.example if one not in found]
    if why:
        raise InvalidInput(f"{there}: {why}; name a column for a field, as in --map {[*lacking, 'FIELD'][0]}=COLUMN")
    carried = [each for each in columns if each not in found.values()]
    return Fields(found, carried, frozenset(one for one in found if _takes_text(known[one])))


def item_schema(task: Task, info: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the JSON schema of an item; it has no properties if a model takes any."""
    if (own := info.get("input_schema")) is not None:
        return {"properties": {}, **own}
    found = task.item.model_json_schema()
    return found | {"properties": {}} if task.item.model_config.get("extra") == "allow" else found


def vector_fields(schema: Mapping[str, Any]) -> list[str]:
    """Return the fields that are lists of numbers, by a JSON schema."""
    found = schema.get("properties", {}).items()
    return [
        name
        for name, each in found
        if any(form.get("items", {}).get("type") in ("number", "integer") for form in each.get("anyOf", [each]))
    ]


def cells(task: Task, result: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result as cells by column, without its index and id; a failed one has its error's sentence."""
    own = {f"output_{name}" if name in FIXED else name: value for name, value in task.columns(result).items()}
    error = result["error"] or {}
    tail = {"windows": result["windows"], "error": error.get("detail"), "model": result.get("model")}
    return {"status": result["status"], **own, **tail}


def widen(kinds: dict[str, Kind], row: Mapping[str, Any]) -> None:
    """Widen the kinds of a task's columns so that they hold one more row of ``cells``."""
    for name, value in row.items():
        if name not in FIXED:
            both = {kinds.get(name), _kind_of(value)} - {None}
            widest = float if both == {int, float} else object
            kinds[name] = widest if len(both) > 1 else next(iter(both), None)


def without_clash(names: Iterable[str], taken: Iterable[str]) -> dict[str, str]:
    """Return the names of the input's columns in the output: one that a result's column has gets `input_` before it."""
    known, found = {*taken}, dict[str, str]()
    for name in names:
        found[name] = name
        while found[name] in known:
            found[name] = f"input_{found[name]}"
        known.add(found[name])
    return found


def _kind_of(value: Any) -> Kind:
    if isinstance(value, array) or (isinstance(value, list) and value and all(type(each) is float for each in value)):
        return len(value)
    if value is None or isinstance(value, bool | float | str):
        return None if value is None else type(value)
    return int if isinstance(value, int) and value < 2**63 else object


def as_text(kind: Kind, value: Any) -> str | None:
    """Return a cell as text: what is no text as JSON; None for nothing."""
    if value is None or (kind is str and isinstance(value, str)):
        return value
    return orjson.dumps(value, default=plain).decode()


def plain(value: object) -> Any:
    """Return what stands in JSON for a value that it cannot hold: base64 for bytes, a number for a decimal."""
    if isinstance(value, array):
        return value.tolist()
    if isinstance(value, bytes):
        return urlsafe_b64encode(value).decode()
    return float(value) if isinstance(value, Decimal) else str(value)


def arrow_type(kind: Kind) -> Any:
    """Return the type of Arrow for a kind: vectors are fixed-size lists of float32."""
    import pyarrow as pa

    if isinstance(kind, int):
        return pa.list_(pa.float32(), kind)
    return {bool: pa.bool_(), int: pa.int64(), float: pa.float64()}.get(kind or str, pa.string())


def arrow_array(kind: Kind, values: Sequence[Any]) -> Any:
    """Return cells as an array of Arrow of the kind's type."""
    import pyarrow as pa

    if isinstance(kind, int):
        # Arrow would take them one by one, which is a hundred times slower.
        numbers = array("f")
        for each in values:
            numbers.extend([0.0] * kind if each is None else each)
        flat = pa.Array.from_buffers(pa.float32(), len(numbers), [None, pa.py_buffer(numbers)])
        mask = pa.array([each is None for each in values], pa.bool_())
        return pa.FixedSizeListArray.from_arrays(flat, type=arrow_type(kind), mask=mask)
    if kind is float:
        values = [each if each is None else float(each) for each in values]
    elif kind in (str, object, None):
        values = [as_text(kind, each) for each in values]
    return pa.array(values, arrow_type(kind))


def _takes_text(schema: Mapping[str, Any]) -> bool:
    kinds: set[str] = set()
    for form in schema.get("anyOf", [schema]):
        kind = form.get("type", "any")
        kinds |= {kind} if isinstance(kind, str) else {*kind}
    return "string" in kinds or not kinds & NOT_TEXT


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name[:64]}`" for name in names)
