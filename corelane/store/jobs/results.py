"""Stored results: read in item order, and dropped once the caller has them.

The results of a slice are stored under the index of its first item. Slices never overlap, and none has more than
``MAX_SLICE_ITEMS`` items.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import orjson

from corelane.domain.dispatch import MAX_SLICE_ITEMS, slice_ids
from corelane.domain.jobs import JobStatus
from corelane.errors import ResultsDropped
from corelane.store import keys
from corelane.store.jobs.records import JobRecord
from corelane.store.jobs.stored_results import decode_results
from corelane.store.keys import RedisKey
from corelane.store.link.library import Command
from corelane.store.link.link import CommonLink
from corelane.tasks.results import unanswered_result

#: Items read in one trip.
PAGE_ITEMS = 1024


async def read_results(link: CommonLink, record: JobRecord, after: int, limit: int) -> list[dict[str, Any]]:
    """Read results in order from item ``after`` up to the first item that is not final; raise ResultsDropped."""
    require_kept(record, after)
    found: list[dict[str, Any]] = []
    while (at := after + len(found)) < record.total and len(found) < limit:
        page = await _read_page(link, record, at, min(PAGE_ITEMS, limit - len(found)))
        found += page
        if not page:
            break
    return found[:limit]


def require_kept(record: JobRecord, after: int) -> None:
    """Raise ResultsDropped if the results from item ``after`` on are not all kept."""
    if after < record.dropped:
        raise ResultsDropped(
            f"the results before item {record.dropped:,} were dropped when their reader asked for it; go on from there"
        )


async def drop_results(link: CommonLink, record: JobRecord, before: int) -> int:
    """Drop results of items before an index, but not past the first unanswered one; return the first index kept."""
    at = record.dropped
    while at < min(before, record.total):
        begin, blobs = await _read_slices(link, keys.results, record, at, min(PAGE_ITEMS, before - at))
        firsts: list[int] = []
        failed: list[int] = []
        end = at
        while (blob := blobs[end - begin] if end - begin < len(blobs) else None) is not None:
            results = decode_results(blob, None)
            if end + len(results) > before:
                break
            firsts.append(end)
            failed += [end + i for i, result in enumerate(results) if result["status"] != JobStatus.SUCCEEDED]
            end += len(results)
        if not firsts:
            break
        kept = int(await link.run("drop", job=record.id, before=end, firsts=firsts, failed=failed))
        if kept <= at:  # Deleted meanwhile.
            break
        at = kept
    return at


async def drop_final(link: CommonLink, record: JobRecord, unanswered: AsyncIterator[list[int]], ttl_s: int) -> None:
    """Drop all results of a final job and its payloads in Redis. For a retry, note which items have no result.

    The job itself is kept for ``ttl_s`` from now. May be repeated.
    """
    dropped = keys.dropped(record.id)
    if record.succeeded < record.total:
        async for indexes in unanswered:
            bits: list[Command] = [("SETBIT", dropped, index, 1) for index in indexes]
            await link.many([*bits, ("EXPIRE", dropped, ttl_s)])
    await link.run("drop", job=record.id, before=record.total, firsts=[], failed=[])
    await link.many(
        [
            ("UNLINK", keys.results(record.id), keys.payloads(record.id)),
            ("EXPIRE", keys.job(record.id), ttl_s),
            ("EXPIRE", dropped, ttl_s),
        ]
    )


async def _read_page(link: CommonLink, record: JobRecord, at: int, count: int) -> list[dict[str, Any]]:
    """Read the next results up to a gap. In a final job a gap is an item that was never answered."""
    begin, blobs = await _read_slices(link, keys.results, record, at, count)
    status = record.status if record.error is None else JobStatus.FAILED
    found: list[dict[str, Any]] = []
    ids: Sequence[str | None] | None = None
    offset = at - begin
    covering = next((i for i in range(offset, -1, -1) if blobs[i] is not None), None)
    if covering is not None and covering < offset:
        found = decode_results(blobs[covering] or b"[]", record.options)[offset - covering :]
    while (position := offset + len(found)) < len(blobs):
        blob = blobs[position]
        if blob is not None:
            found += orjson.loads(blob) if blob.startswith(b"[") else decode_results(blob, record.options)
        elif record.status.is_final:
            ids = await _item_ids(link, record, at, count) if ids is None else ids
            index = at + len(found)
            found.append(
                unanswered_result(record.options.task, index, ids[index - at], status) | {"error": record.error}
            )
        else:
            break
    return found


async def _item_ids(link: CommonLink, record: JobRecord, at: int, count: int) -> list[str | None]:
    """Read the callers' ids of items whose payloads are still there.

    In a job fed from a file only fed items are considered: payloads beyond them may appear after the job has ended.
    """
    begin, payloads = await _read_slices(link, keys.payloads, record, at, count)
    ids: list[str | None] = [None] * (len(payloads) + MAX_SLICE_ITEMS)
    for first, payload in enumerate(payloads):
        if record.file is None or begin + first < record.fed:
            for offset, item_id in enumerate(slice_ids(payload)):
                ids[first + offset] = item_id
    return ids[at - begin :]


async def _read_slices(
    link: CommonLink, key: RedisKey, record: JobRecord, at: int, count: int
) -> tuple[int, list[bytes | None]]:
    """Read all slices from the earliest that can hold item ``at``; return that slice's index too."""
    begin = max(record.dropped, at - MAX_SLICE_ITEMS + 1)
    end = min(at + count, record.total)
    if key is keys.results and end <= len(record.first_results):
        return begin, list(record.first_results[begin:end])
    return begin, await link("HMGET", key(record.id), *range(begin, end))
