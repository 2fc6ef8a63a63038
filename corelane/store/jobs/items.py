"""One item of a job as it was submitted, while it is kept.

A payload is deleted when its slice is answered without a failure, the file of an NDJSON job when the job succeeds.
"""

import asyncio
from itertools import islice

from corelane.domain.dispatch import MAX_SLICE_ITEMS, Row, decode_slice
from corelane.domain.jobs import Item
from corelane.domain.texts import Stored
from corelane.errors import NotFound
from corelane.settings import Settings
from corelane.store import keys
from corelane.store.item_files import ItemFiles, decode_line
from corelane.store.jobs.records import JobRecord
from corelane.store.link.link import CommonLink
from corelane.tasks.registry import task_named


async def read_item(link: CommonLink, record: JobRecord, index: int, settings: Settings) -> Item | None:
    """Return one item of a job with its text, shared or not; or None if it is not kept any more."""
    row = await _from_payload(link, record.id, index)
    if row is None and record.file:
        row = await asyncio.to_thread(_from_file, ItemFiles(settings), record, index)
    if row is None:
        return None
    item_id, beside, text = row
    if not isinstance(text, str):
        if isinstance(text, Stored):
            found = await link("HGET", keys.stored_text(record.owner, text.digest), "text")
        else:
            found = await link("HGET", keys.shared_texts(record.id), text)
        if found is None:
            return None
        text = found.decode()
    return task_named(record.options.task).item_of((item_id, beside, text))


async def _from_payload(link: CommonLink, job: str, index: int) -> Row | None:
    """Find an item in its slice. The slice starts at most ``MAX_SLICE_ITEMS`` - 1 items before it."""
    begin = max(0, index - MAX_SLICE_ITEMS + 1)
    payloads = await link("HMGET", keys.payloads(job), *range(begin, index + 1))
    for first, payload in enumerate(payloads, begin):
        rows = decode_slice(payload) if payload is not None else []
        if index - first < len(rows):
            return rows[index - first]
    return None


def _from_file(files: ItemFiles, record: JobRecord, index: int) -> Row | None:
    """Read one line of a job's file; None if the line is no valid item, or the file is gone or on another host."""
    try:
        text = next(islice(files.lines(record.file or "", record.parts), index, None), None)
    except NotFound:
        return None
    if text is None:
        return None
    line = decode_line(text)
    return line.row if line.error is None else None
