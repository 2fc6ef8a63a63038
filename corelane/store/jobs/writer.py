"""Submitting a job: its fields, its payloads, and the step that writes all of it.

Payloads of a job that was not submitted expire within a minute.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from corelane.domain.contexts import PREFIX
from corelane.domain.dispatch import Ref, encode_slice, item_row
from corelane.domain.jobs import JobStatus
from corelane.domain.reuse import MOST_CACHED_ITEMS, MOST_ITEMS, cut_out, item_digests, repeated
from corelane.settings import Settings
from corelane.settings.faults import reach
from corelane.store import keys
from corelane.store.contexts import unknown
from corelane.store.jobs.contributions import Contributor, SubmitStep
from corelane.store.jobs.fields import job_fields, unique
from corelane.store.jobs.idempotency import Held, Holder
from corelane.store.jobs.records import JobRecord, PromiseRecord
from corelane.store.jobs.submission import Submission
from corelane.store.link.library import Command
from corelane.store.link.link import CommonLink, call, flatten

#: Payloads written before their job is submitted live this long, in seconds.
PAYLOAD_TTL_S = 60

#: The payload of a job of one slice comes with the call that submits it, up to this size in bytes: Lua copies it.
INLINE_BYTES = 64 * 1024

#: The reply to a job whose ``once`` another holds, before that one.
HELD = -1

#: The reply to a job of which some items are answered or computed already, before their indexes.
KNOWN = -2

#: The reply where a stored context is not there, before the digests of those.
MISSING = -3

#: A slice: its first item, its items, their tokens.
Cut = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Written:
    """A job that was submitted, as it stood then; ``is_final`` says that all of it was answered in that step."""

    record: JobRecord
    is_final: bool


class JobWriter:
    """Writes jobs."""

    def __init__(self, link: CommonLink, settings: Settings, bell: str, contributors: Sequence[Contributor]) -> None:
        self._link = link
        self._settings = settings
        self._bell = bell
        self._contributors = contributors

    async def write(
        self, submission: Submission, version: str, slices: Sequence[Cut], promise: PromiseRecord | None
    ) -> Written:
        """Write a job in one step, or find it written; see ``JobStore.submit``."""
        digests = self._digests(submission, version)
        if alone := repeated(digests):
            slices = list(cut_out(slices, alone))
        step = self._step(submission, version, promise, digests)
        reply = await self._commit(submission, slices, step)
        if reply[0] == KNOWN:
            step.arguments["is_cut"] = True
            reply = await self._commit(submission, list(cut_out(slices, reply[1])), step)
        if reply[0] == MISSING:
            raise unknown(f"{PREFIX}{digest.decode()}" for digest in reply[1:])
        if reply[0] == HELD:
            raise Held(Holder.decode(reply[1]))
        is_new, created_ms, expires_ms, *is_final = reply
        return Written(_record(submission, version, promise, created_ms, expires_ms), bool(is_new and is_final[0]))

    def _step(
        self, submission: Submission, version: str, promise: PromiseRecord | None, digests: Sequence[str]
    ) -> SubmitStep:
        """Build what is submitted beside payloads and refs, with what contributors add."""
        head, file, once = submission.head, submission.file, submission.once
        arguments: dict[str, Any] = {
            "job": submission.id,
            "version": version,
            "envelope": self._bell,
            "submit_us": _submit_us(submission),
            "expires_in_ms": int(1000 * (head.expires_in_s or 0)),
        }
        if file is not None:
            arguments |= {"file": file.name, "file_tokens": file.tokens}
        if once is not None:
            arguments |= {"once": once.key, "fingerprint": once.fingerprint, "once_ttl_s": once.ttl_s}
        if digests:
            arguments |= {"digests": "".join(digests), "is_cut": submission.total == 1}
            arguments |= {"cache": self._settings.cache, "ttl": self._settings.results_ttl_s}
        step = SubmitStep(job_fields(submission, promise, digests), arguments)
        for contribute in self._contributors:
            contribute(submission, step)
        return step

    def _digests(self, submission: Submission, version: str) -> list[str]:
        """Return the digests by which a job's items are found to be equal to others; none if it takes no part."""
        items, head = submission.items, submission.head
        most = MOST_CACHED_ITEMS if self._settings.cache else MOST_ITEMS
        if not (head.reuse and self._settings.reuse and 0 < len(items) <= most):
            return []
        return item_digests(submission.owner, version, head.options, items, head.contexts or {})

    async def _commit(self, submission: Submission, slices: Sequence[Cut], step: SubmitStep) -> Any:
        """Submit, with the payload if that is small and the only one; else write payloads and shared contexts first, in
        the same trip.
        """
        payloads, refs = _slices(submission, slices)
        arguments = {**step.arguments, "fields": step.fields}
        if len(payloads) == 1 and not submission.head.contexts and len(*payloads.values()) <= INLINE_BYTES:
            submit = call("submit", *refs, *payloads.values(), firsts=list(payloads), **arguments)
            return (await self._link.many([*step.before, submit]))[-1] if step.before else await self._link(*submit)
        written: list[Command] = []
        texts = dict(enumerate((submission.head.contexts or {}).values()))
        for pattern, values in ((keys.payloads, payloads), (keys.contexts, texts)):
            if values:
                key = pattern % submission.id
                written += [("HSET", key, *flatten(values)), ("EXPIRE", key, PAYLOAD_TTL_S)]
        if self._settings.armed_faults:
            await self._link.many(written)
            reach("submit.payloads_written", self._settings.armed_faults)
        return (await self._link.many([*written, *step.before, call("submit", *refs, **arguments)]))[-1]


def _slices(submission: Submission, slices: Sequence[Cut]) -> tuple[dict[int, bytes], list[str]]:
    """Return the payloads by their first items, and the refs that stand for them."""
    numbers = {context_id: number for number, context_id in enumerate(submission.head.contexts or ())}
    rows = [item_row(item, numbers) for item in submission.items]
    rank = submission.head.priority.rank
    payloads = {first: encode_slice(rows[first : first + count]) for first, count, _ in slices}
    refs = [
        Ref(submission.id, submission.owner, rank, first, first, count, tokens).encode()
        for first, count, tokens in slices
    ]
    return payloads, refs


def _submit_us(submission: Submission) -> int:
    """Return the microseconds since the request of a submission came; 0 without one."""
    received = submission.request.received
    return 0 if received is None else int(1_000_000 * (time.perf_counter() - received))


def _record(
    submission: Submission, version: str, promise: PromiseRecord | None, created_ms: bytes, expires_ms: bytes | None
) -> JobRecord:
    """Return a job as it stands when it was submitted."""
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
        promise=promise,
        labels=unique(head.labels),
        name=submission.name,
        retry_of=submission.retry_of,
        input_url=submission.input_url,
        output_url=head.output_url,
    )
