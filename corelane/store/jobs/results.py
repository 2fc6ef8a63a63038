"""Stored results: read in item order, and forgotten once the caller has them.

A stretch of results stands under the index of its first item; stretches never overlap, and none is longer than
``MAX_SLICE_ITEMS``.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Any

import orjson

from corelane.domain.dispatch import MAX_SLICE_ITEMS
from corelane.domain.jobs import JobStatus, unanswered_result
from corelane.errors import ResultsDropped
from corelane.store.jobs.payloads import slice_ids
from corelane.store.jobs.records import JobRecord
from corelane.store.link.aio import AsyncLink
from corelane.store.link.surface import Command

#: Indexes looked at in one trip.
LOOK_ITEMS = 1024


async def read_results(link: AsyncLink, record: JobRecord, after: int, limit: int) -> list[dict[str, Any]]:
    """Results from item ``after`` on, in order, up to the first that is not final yet; raises ResultsDropped."""
    require_kept(record, after)
    found: list[dict[str, Any]] = []
    while (at := after + len(found)) < record.total and len(found) < limit:
        stretch = await _read_on(link, record, at, min(LOOK_ITEMS, limit - len(found)))
        found += stretch
        if not stretch:
            break
    return found[:limit]


def require_kept(record: JobRecord, after: int) -> None:
    """Raise ResultsDropped if results from an item on are no longer there."""
    if after < record.dropped:
        raise ResultsDropped(
            f"the results before item {record.dropped:,} were dropped when their reader asked for it; go on from there"
        )


async def drop_results(link: AsyncLink, record: JobRecord, before: int) -> int:
    """Forget results of items before an index, as far as they are all answered; the index of the first one kept."""
    at = record.dropped
    while at < min(before, record.total):
        begin, blobs = await _look(link, "out", record, at, min(LOOK_ITEMS, before - at))
        firsts: list[int] = []
        failed: list[int] = []
        end = at
        while (blob := blobs[end - begin] if end - begin < len(blobs) else None) is not None:
            results = orjson.loads(blob)
            if end + len(results) > before:
                break
            firsts.append(end)
            failed += [end + i for i, result in enumerate(results) if result["status"] != JobStatus.SUCCEEDED]
            end += len(results)
        if not firsts:
            break
        kept = int(await link.run("drop", record.id, end, len(firsts), *firsts, *failed))
        if kept <= at:  # Deleted meanwhile.
            break
        at = kept
    return at


async def drop_final(link: AsyncLink, record: JobRecord, unanswered: AsyncIterator[list[int]], ttl_s: int) -> None:
    """Forget all results of a final job, and its payloads in Redis, but not which items have no answer: a retry asks
    for those. The job itself is kept for ``ttl_s`` from now. May be repeated.
    """
    key, dropped, left = (f"cl:{kind}:{{{record.id}}}" for kind in ("job", "dropped", "out"))
    if record.succeeded < record.total:
        async for indexes in unanswered:
            bits: list[Command] = [("SETBIT", dropped, index, 1) for index in indexes]
            await link.many([*bits, ("EXPIRE", dropped, ttl_s)])
    await link.run("drop", record.id, record.total, 0)
    await link.many([("UNLINK", left, f"cl:in:{{{record.id}}}"), ("EXPIRE", key, ttl_s), ("EXPIRE", dropped, ttl_s)])


async def _read_on(link: AsyncLink, record: JobRecord, at: int, count: int) -> list[dict[str, Any]]:
    """The next results up to a gap; in a final job gaps are what was never answered."""
    begin, blobs = await _look(link, "out", record, at, count)
    status = record.status if record.error is None else JobStatus.FAILED
    found: list[dict[str, Any]] = []
    ids: Sequence[str | None] | None = None
    place = at - begin
    covering = next((i for i in range(place, -1, -1) if blobs[i] is not None), None)
    if covering is not None and covering < place:
        found = orjson.loads(blobs[covering] or b"[]")[place - covering :]
    while (next_place := place + len(found)) < len(blobs):
        blob = blobs[next_place]
        if blob is not None:
            found += orjson.loads(blob)
        elif record.status.is_final:
            ids = await _item_ids(link, record, at, count) if ids is None else ids
            index = at + len(found)
            found.append(unanswered_result(index, ids[index - at], status) | {"error": record.error})
        else:
            break
    return found


async def _item_ids(link: AsyncLink, record: JobRecord, at: int, count: int) -> list[str | None]:
    """The callers' own ids of items whose payloads are still there."""
    begin, payloads = await _look(link, "in", record, at, count)
    ids: list[str | None] = [None] * (len(payloads) + MAX_SLICE_ITEMS)
    for place, payload in enumerate(payloads):
        for offset, item_id in enumerate(slice_ids(payload)):
            ids[place + offset] = item_id
    return ids[at - begin :]


async def _look(link: AsyncLink, kind: str, record: JobRecord, at: int, count: int) -> tuple[int, list[bytes | None]]:
    """What stands under each index, from the earliest that can hold item ``at``; the first index, and what is there."""
    begin = max(record.dropped, at - MAX_SLICE_ITEMS + 1)
    end = min(at + count, record.total)
    if kind == "out" and end <= len(record.first_results):
        return begin, list(record.first_results[begin:end])
    return begin, await link("HMGET", f"cl:{kind}:{{{record.id}}}", *range(begin, end))
