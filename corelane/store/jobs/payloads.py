"""Payloads: a slice's items as they are stored until they are answered. Pure.

A row is ``[id, question, context]``. A context is stored once: a number refers to the job's own contexts, null to the
row before in the same slice.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from corelane.domain.jobs import Item

#: An item's id, question, and context: its text, or the number of one of the job's contexts.
Row = tuple[str | None, str, str | int]


def item_row(item: Item, numbers: Mapping[str, int]) -> Row:
    """Return an item as a row; ``numbers`` are the numbers of the job's contexts by their ids."""
    context = item.context if item.context_id is None else numbers[item.context_id]
    return item.id, item.question, context if context is not None else ""


def encode_slice(rows: Iterable[Row]) -> bytes:
    """Return rows as they are stored."""
    before: str | int | None = None
    stored = []
    for item_id, question, context in rows:
        stored.append((item_id, question, None if context == before else context))
        before = context
    return orjson.dumps(stored)


def decode_slice(payload: bytes) -> list[Row]:
    """Return the rows of a slice; raise ValueError for a payload that no process of ours wrote."""
    rows: list[Row] = []
    for row in _rows(payload):
        item_id, question, context = row
        if context is None and rows:
            context = rows[-1][2]
        # type(): True is an int to isinstance().
        if type(item_id) not in (str, type(None)) or type(question) is not str or type(context) not in (str, int):
            raise ValueError("a row is not [id, question, context]")
        rows.append((item_id, question, context))
    return rows


def slice_ids(payload: bytes | None) -> Sequence[str | None]:
    """Return the callers' own ids of a slice's items; nothing for a payload that is gone or cannot be read."""
    try:
        return [row[0] for row in decode_slice(payload)] if payload else ()
    except ValueError:
        return ()


def _rows(payload: bytes) -> list[list[Any]]:
    rows = orjson.loads(payload)
    if not isinstance(rows, list) or not all(isinstance(row, list) and len(row) == 3 for row in rows):
        raise ValueError("a payload is not a list of rows")
    return rows
