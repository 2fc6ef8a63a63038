"""The items of the refs in a claim: their payloads, and their contexts, shared within a job or stored by the owner."""

from collections.abc import Mapping, Sequence

from corelane.domain.contexts import Stored
from corelane.domain.dispatch import Ref, Row, decode_slice
from corelane.domain.options import Options
from corelane.log import get_logger
from corelane.store import keys
from corelane.store.contexts import ContextTexts
from corelane.store.jobs.records import parse_options
from corelane.store.link.blocking import Link
from corelane.store.link.library import Command

log = get_logger(__name__)

#: A payload and its job's options, as they are stored.
Payload = tuple[bytes, bytes]

#: Items as (id, question, context).
Items = list[tuple[str | None, str, str]]


def read_items(
    link: Link, texts: ContextTexts, refs: Sequence[Ref], small: Mapping[str, Payload]
) -> dict[str, tuple[Items, Options]]:
    """Return the items and options of refs, by the refs' keys; leave out those that are gone or cannot be read.

    ``small`` holds payloads that were read already; ``texts`` reads and caches stored contexts.
    """
    payloads = {**small, **_read_payloads(link, [ref for ref in refs if ref.key not in small])}
    found = []
    for ref in refs:
        if ref.key not in payloads:
            continue
        payload, options = payloads[ref.key]
        try:
            found.append((ref, decode_slice(payload)[ref.offset :][: ref.count], parse_options(options)))
        except ValueError as error:
            log.error("payload_unreadable", ref=ref.encode(), reason=str(error)[:200])
    shared = _read_contexts(link, [(ref, rows) for ref, rows, _ in found])
    wanted = {(ref.owner, row[2]) for ref, rows, _ in found for row in rows if isinstance(row[2], Stored)}
    stored = texts.read(wanted) if wanted else {}
    items = {}
    for ref, rows, its_options in found:
        texted = [(i, q, c if isinstance(c, str) else _text_of(ref, c, shared, stored)) for i, q, c in rows]
        whole = [(i, q, c) for i, q, c in texted if c is not None]
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


def _read_contexts(link: Link, found: Sequence[tuple[Ref, Sequence[Row]]]) -> dict[tuple[str, int], str]:
    """Read the contexts that a job's items share, by job and number."""
    needed: dict[str, set[int]] = {}
    for ref, rows in found:
        if numbers := {row[2] for row in rows if isinstance(row[2], int)}:
            needed.setdefault(ref.job, set()).update(numbers)
    if not needed:
        return {}
    commands = [("HMGET", keys.contexts(job), *sorted(numbers)) for job, numbers in needed.items()]
    return {
        (job, number): text.decode(errors="replace")
        for (job, numbers), texts in zip(needed.items(), link.many(commands), strict=True)
        for number, text in zip(sorted(numbers), texts, strict=True)
        if text is not None
    }


def _text_of(
    ref: Ref,
    context: int | Stored,
    shared: Mapping[tuple[str, int], str],
    stored: Mapping[tuple[str, Stored], str],
) -> str | None:
    """Return the text of a row's context, or None if it is not there."""
    return shared.get((ref.job, context)) if isinstance(context, int) else stored.get((ref.owner, context))
