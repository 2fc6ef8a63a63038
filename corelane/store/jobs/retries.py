"""Finds items of a final job that were not answered, for a retry. The items of an NDJSON job are in its file."""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Any

from corelane.domain.jobs import JobStatus
from corelane.errors import ItemsLost, fails_again
from corelane.store import keys
from corelane.store.item_files import decode_line
from corelane.store.jobs.records import JobRecord
from corelane.store.jobs.results import PAGE_ITEMS, read_results
from corelane.store.link.link import CommonLink


async def unanswered(link: CommonLink, record: JobRecord) -> AsyncIterator[list[int]]:
    """Yield the indexes of a final job's items that did not succeed but may on a retry, in order and in lists."""
    if record.dropped:
        bits = await link("GET", keys.dropped(record.id))
        yield [index for index in set_bits(bits or b"") if index < record.dropped]
    at = record.dropped
    while at < record.total:
        results = await read_results(link, record, at, PAGE_ITEMS)
        yield [result["index"] for result in results if may_succeed(result)]
        at += len(results)


def may_succeed(result: Mapping[str, Any]) -> bool:
    """Return whether the item of a result failed, but may succeed if it is asked again."""
    if result["status"] == JobStatus.SUCCEEDED:
        return False
    return not fails_again((result.get("error") or {}).get("code", ""))


def set_bits(bits: bytes) -> Iterator[int]:
    """Yield the indexes of a bitmap's bits that are set, in order; the first is the highest of the first byte."""
    for place, byte in enumerate(bits):
        if byte:
            yield from (8 * place + bit for bit in range(8) if byte & (128 >> bit))


def copy_lines(lines: Iterator[bytes], write: Callable[[bytes], object], indexes: Iterable[int]) -> tuple[int, int]:
    """Copy the items with these indexes, in order, from one job's lines; return their number and their tokens.

    Invalid lines are left out. Raise EOFError if the lines end before an item.
    """
    count = tokens = 0
    numbered = enumerate(lines)
    for wanted in indexes:
        text = next((text for index, text in numbered if index == wanted), None)
        if text is None:
            raise EOFError
        line = decode_line(text)
        if line.error is None:
            write(text)
            count, tokens = count + 1, tokens + line.tokens
    return count, tokens


def items_lost(record: JobRecord, count: int) -> ItemsLost:
    """Return the error for items that cannot be retried because they are gone."""
    return ItemsLost(f"{count:,} of the {record.total:,} items of {record.id} are gone: send them again as a new job")
