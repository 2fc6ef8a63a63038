"""Submits a job: its fields, its payloads, and the step that writes all of it.

Payloads of a job that was not submitted expire within a minute.
"""

from collections.abc import Sequence
from typing import Any

import orjson

from corelane.domain.dispatch import Ref, encode_slice
from corelane.domain.job_requests import LinesHead
from corelane.domain.jobs import JobStatus
from corelane.domain.wire import epoch_ms
from corelane.settings import Settings
from corelane.store import keys
from corelane.store.jobs.idempotency import Held, Holder
from corelane.store.jobs.records import JobRecord
from corelane.store.jobs.submission import Assumed, Submission
from corelane.store.link.library import Command
from corelane.store.link.link import CommonLink, call, flatten
from corelane.tasks.registry import stored_options, task_named

#: Payloads written before their job is submitted live this long, in seconds.
PAYLOAD_TTL_S = 60

#: A job's payload, if it is the only one, is sent in the submitting call up to this size in bytes: Lua copies it.
INLINE_BYTES = 64 * 1024

#: First value of the reply if another job holds the ``once``; that holder follows.
HELD = -1

#: A slice: its first item, its number of items, their tokens.
Cut = tuple[int, int, int]


class JobWriter:
    """Writes a job to the store."""

    def __init__(self, link: CommonLink, settings: Settings, bell: str) -> None:
        self._link = link
        self._settings = settings
        self._bell = bell

    async def write(
        self, submission: Submission, version: str, slices: Sequence[Cut], assumed: Assumed | None
    ) -> JobRecord:
        """Write a job in one step, or find it already written; see ``JobStore.submit``."""
        reply = await self._commit(submission, slices, self._arguments(submission, version) | {"assumed": assumed})
        if reply[0] == HELD:
            raise Held(Holder.decode(reply[1]))
        _, created_ms, expires_ms = reply
        return _record(submission, version, created_ms, expires_ms)

    def _arguments(self, submission: Submission, version: str) -> dict[str, Any]:
        """Return the arguments of the call ``submit``, without payloads and refs."""
        file, once = submission.file, submission.once
        arguments: dict[str, Any] = {
            "job": submission.id,
            "version": version,
            "envelope": self._bell,
            "expires_in_ms": int(1000 * (submission.head.expires_in_s or 0)),
            "fields": job_fields(submission),
            "input": submission.input_url is not None or None,
        }
        if file is not None:
            arguments |= {"file": file.name, "file_tokens": file.tokens}
        if once is not None:
            arguments |= {"once": once.key, "fingerprint": once.fingerprint, "once_ttl_s": once.ttl_s}
        return arguments

    async def _commit(self, submission: Submission, slices: Sequence[Cut], arguments: dict[str, Any]) -> Any:
        """Submit the job. If it has one payload, which is small, and no shared texts, one call has all of it.

        Otherwise payloads and shared texts are written first, in the same trip.
        """
        payloads, refs = _slices(submission, slices)
        if len(payloads) == 1 and not submission.head.shared_texts and len(*payloads.values()) <= INLINE_BYTES:
            return await self._link.run("submit", *refs, *payloads.values(), firsts=list(payloads), **arguments)
        written: list[Command] = []
        texts = dict(enumerate(submission.head.shared_texts.values()))
        for pattern, values in ((keys.payloads, payloads), (keys.shared_texts, texts)):
            if values:
                key = pattern % submission.id
                written += [("HSET", key, *flatten(values)), ("EXPIRE", key, PAYLOAD_TTL_S)]
        return (await self._link.many([*written, call("submit", *refs, **arguments)]))[-1]


def job_fields(submission: Submission) -> dict[str, Any]:
    """Return the fields of the job's hash, except those that Redis sets; fields without a value are left out."""
    head, is_read = submission.head, submission.input_url is not None
    optional = {
        "request_id": submission.request.request_id,
        "traceparent": submission.request.traceparent,
        "webhook_url": head.webhook and head.webhook.url,
        "webhook_events": head.webhook and ",".join(head.webhook.events),
        "asked": submission.asked or head.model,
        "keep_s": head.keep_s,
        "not_before_ms": epoch_ms(head.not_before) if head.not_before else None,
        "name": submission.name,
        "retry_of": submission.retry_of,
        "tell": submission.tell,
        "results_window": isinstance(head, LinesHead) and head.results_window,
        "input_url": submission.input_url,
        keys.TEXT_IDS: is_read and head.shared_texts and orjson.dumps(list(head.shared_texts)),
        "output_url": head.output_url,
        "invalid_items": is_read and head.invalid_items,
    }
    return {
        "total": submission.total,
        "left": submission.total,
        "owner": submission.owner,
        "priority": head.priority.rank,
        "options": stored_options(head.options),
        "metadata": orjson.dumps(head.metadata),
        **{name: value for name, value in optional.items() if value},
    }


def _slices(submission: Submission, slices: Sequence[Cut]) -> tuple[dict[int, bytes], list[str]]:
    """Return the payloads by the index of their first item, and the refs to them."""
    task = task_named(submission.head.options.task)
    numbers = {text_id: number for number, text_id in enumerate(submission.head.shared_texts)}
    rows = [task.row(item, numbers) for item in submission.items]
    rank = submission.head.priority.rank
    payloads = {first: encode_slice(rows[first : first + count]) for first, count, _ in slices}
    refs = [
        Ref(submission.id, submission.owner, rank, first, first, count, tokens).encode()
        for first, count, tokens in slices
    ]
    return payloads, refs


def _record(submission: Submission, version: str, created_ms: bytes, expires_ms: bytes | None) -> JobRecord:
    """Return the record of a job as it is right after its submission."""
    head = submission.head
    return JobRecord(
        id=submission.id,
        status=JobStatus.QUEUED,
        version=version,
        total=submission.total,
        created_ms=int(created_ms),
        options=head.options,
        metadata=dict(head.metadata),
        owner=submission.owner,
        priority=head.priority,
        expires_ms=None if expires_ms is None else int(expires_ms),
        not_before_ms=epoch_ms(head.not_before) if head.not_before else None,
        name=submission.name,
        retry_of=submission.retry_of,
        input_url=submission.input_url,
        output_url=head.output_url,
    )
