"""Payloads: a slice's items as they stand in the store until they are answered. Pure.

A row is ``[id, question, context]``. A context is stored once: a number refers to the job's own contexts, null to the
row before in the same slice.
"""

from collections.abc import Iterable, Mapping, Sequence

import orjson

from corelane.jobs import Item

#: An item's id, question, and context: its text, or the number of one of the job's contexts.
Row = tuple[str | None, str, str | int]


def item_row(item: Item, numbers: Mapping[str, int]) -> Row:
    """An item as a row; ``numbers`` are the places of the job's contexts by their ids."""
    context = item.context if item.context_id is None else numbers[item.context_id]
    return item.id, item.question, context if context is not None else ""


def encode_slice(rows: Iterable[Row]) -> bytes:
    """Rows as they are stored."""
    before: str | int | None = None
    stored = []
    for item_id, question, context in rows:
        stored.append((item_id, question, None if context == before else context))
        before = context
    return orjson.dumps(stored)


def decode_slice(payload: bytes) -> list[Row]:
    """The rows of a slice."""
    rows: list[Row] = []
    for item_id, question, context in orjson.loads(payload):
        rows.append((item_id, question, rows[-1][2] if context is None else context))
    return rows


def slice_ids(payload: bytes | None) -> Sequence[str | None]:
    """The callers' own ids of a slice's items; none for a payload that is gone."""
    return [row[0] for row in orjson.loads(payload)] if payload else ()
