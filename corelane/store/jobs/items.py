"""One item of a job as it was asked: its question and its passage, as long as they are kept.

Payloads go when their slice is answered without a failure, and the file of an NDJSON job goes with its success. So the
items of a job that succeeded are mostly gone, and those of a failed item are there.
"""

import asyncio
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import orjson

from corelane.domain.dispatch import MAX_SLICE_ITEMS, Row, decode_slice
from corelane.store import keys
from corelane.store.jobs.records import JobRecord
from corelane.store.link.link import CommonLink


@dataclass(frozen=True, slots=True)
class AskedItem:
    """What an item asked."""

    id: str | None
    question: str
    context: str


async def read_item(link: CommonLink, record: JobRecord, index: int, files: Path) -> AskedItem | None:
    """Return one item of a job, or None if it is not kept; ``files`` is the folder of NDJSON jobs."""
    row = await _from_payload(link, record.id, index)
    if row is None and record.file:
        row = await asyncio.to_thread(_from_file, files / record.file, index)
    if row is None:
        return None
    item_id, question, context = row
    if isinstance(context, int):
        found = await link("HGET", keys.contexts(record.id), context)
        if found is None:
            return None
        context = found.decode()
    return AskedItem(item_id, question, context)


async def _from_payload(link: CommonLink, job: str, index: int) -> Row | None:
    """Find the slice that holds an item; a slice starts at most ``MAX_SLICE_ITEMS`` before its last item."""
    begin = max(0, index - MAX_SLICE_ITEMS + 1)
    payloads = await link("HMGET", keys.payloads(job), *range(begin, index + 1))
    for first, payload in enumerate(payloads, begin):
        rows = decode_slice(payload) if payload is not None else []
        if index - first < len(rows):
            return rows[index - first]
    return None


def _from_file(path: Path, index: int) -> Row | None:
    """Read one line of a job's file; None if the file is gone, as on another host."""
    try:
        with path.open("rb") as lines:
            line = next(islice(lines, index, None), None)
    except FileNotFoundError:
        return None
    if line is None:
        return None
    item_id, question, context, _ = orjson.loads(line)
    return item_id, question, context
