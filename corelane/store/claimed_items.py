"""The items of the refs in a claim: their payloads, and the texts that a job's items share."""

from collections.abc import Mapping, Sequence
from typing import Any

from corelane.domain.dispatch import Ref, Row, decode_slice
from corelane.domain.jobs import TaskOptions
from corelane.log import get_logger
from corelane.store import keys
from corelane.store.link.blocking import Link
from corelane.store.link.library import Command
from corelane.tasks.registry import parse_options, task_named

log = get_logger(__name__)

#: A payload and its job's options, as they are stored.
Payload = tuple[bytes, bytes]

#: Items as (id, the item's other fields, text).
Items = list[tuple[str | None, Any, str]]


def read_items(link: Link, refs: Sequence[Ref], small: Mapping[str, Payload]) -> dict[str, tuple[Items, TaskOptions]]:
    """Return items and options by the keys of their refs; leave out refs whose payload is gone or unreadable.

    ``small`` holds payloads that were read already.
    """
    payloads = {**small, **_read_payloads(link, [ref for ref in refs if ref.key not in small])}
    found = []
    for ref in refs:
        if ref.key not in payloads:
            continue
        payload, options = payloads[ref.key]
        try:
            rows, its_options = decode_slice(payload)[ref.offset :][: ref.count], parse_options(options)
            if not all(isinstance(row[1], task_named(its_options.task).beside) for row in rows):
                raise ValueError(f"a row is no item of {its_options.task}")
            found.append((ref, rows, its_options))
        except ValueError as error:
            log.error("payload_unreadable", ref=ref.encode(), reason=str(error)[:200])
    shared = _read_shared(link, [(ref, rows) for ref, rows, _ in found])
    items = {}
    for ref, rows, its_options in found:
        texted = [(i, b, t if isinstance(t, str) else shared.get((ref.job, t))) for i, b, t in rows]
        whole = [(i, b, t) for i, b, t in texted if t is not None]
        if len(whole) == ref.count:
            items[ref.key] = whole, its_options
    return items


def _read_payloads(link: Link, refs: Sequence[Ref]) -> dict[str, Payload]:
    """Read payloads and options, by the refs' keys; missing ones are left out."""
    by_job: dict[str, list[Ref]] = {}
    for ref in refs:
        by_job.setdefault(ref.job, []).append(ref)
    commands: list[Command] = []
    for job, its_refs in by_job.items():
        commands.append(("HMGET", keys.payloads(job), *(ref.payload for ref in its_refs)))
        commands.append(("HGET", keys.job(job), "options"))
    replies = link.many(commands)
    return {
        ref.key: (payload, options)
        for its_refs, found, options in zip(by_job.values(), replies[::2], replies[1::2], strict=True)
        for ref, payload in zip(its_refs, found, strict=True)
        if payload is not None and options is not None
    }


def _read_shared(link: Link, found: Sequence[tuple[Ref, Sequence[Row]]]) -> dict[tuple[str, int], str]:
    """Read the texts that a job's items share, by job and number."""
    needed: dict[str, set[int]] = {}
    for ref, rows in found:
        if numbers := {row[2] for row in rows if isinstance(row[2], int)}:
            needed.setdefault(ref.job, set()).update(numbers)
    if not needed:
        return {}
    commands = [("HMGET", keys.shared_texts(job), *sorted(numbers)) for job, numbers in needed.items()]
    return {
        (job, number): text.decode(errors="replace")
        for (job, numbers), texts in zip(needed.items(), link.many(commands), strict=True)
        for number, text in zip(sorted(numbers), texts, strict=True)
        if text is not None
    }
