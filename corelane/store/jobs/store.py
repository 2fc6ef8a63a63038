"""JobStore: jobs as the API sees them. Admit, submit, look, list, read and drop results, cancel, delete.

Every call either has its effect or raises StoreUnavailable / StoreFull having had none that anyone can see;
payloads of a job that never came to be expire within a minute.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from corelane.domain.costs import Estimator
from corelane.domain.dispatch import PUBLIC, Ref, cut_slices
from corelane.domain.jobs import Item, JobStatus, Options, Priority, Webhook
from corelane.domain.request_context import NOWHERE, Origin
from corelane.domain.size_limits import check_work
from corelane.settings import Settings
from corelane.settings.faults import reach
from corelane.store import keys
from corelane.store.jobs.admission import Admission, Promise, look, make_promise, require_in_time, require_room
from corelane.store.jobs.idempotency import Held, Holder, Once, by_name, find_holder
from corelane.store.jobs.listing import Filters, JobPage, list_jobs
from corelane.store.jobs.payloads import Row, encode_slice, item_row
from corelane.store.jobs.records import JobRecord, PromiseRecord
from corelane.store.jobs.results import drop_final, drop_results, read_results
from corelane.store.jobs.retries import read_contexts, read_rows, unanswered
from corelane.store.link.library import Command, call
from corelane.store.link.surface import CommonLink, flatten, pairs

#: Payloads written before their job is submitted live this long, in seconds.
PAYLOAD_TTL_S = 60


@dataclass(frozen=True, slots=True)
class Upload:
    """The items of a large job, in a file under the files' root: one row a line.

    Items are fed only while fewer results than ``results_window`` wait to be dropped, if it is given.
    """

    name: str
    items: int
    tokens: int
    results_window: int | None = None


@dataclass(frozen=True, slots=True)
class Submission:
    """A job about to be: everything checked, nothing written. Its items are given here, or uploaded before."""

    id: str
    version: str
    options: Options
    metadata: Mapping[str, str] = field(default_factory=dict)
    webhook: Webhook | None = None
    priority: Priority = Priority.NORMAL
    expires_in_s: float | None = None
    refuse_if_late: bool = False
    owner: str = PUBLIC
    contexts: Mapping[str, str] = field(default_factory=dict)
    items: Sequence[Item] = ()
    upload: Upload | None = None
    labels: Sequence[str] = ()
    asked: str = ""
    keep_s: int | None = None
    name: str | None = None
    retry_of: str | None = None
    once: Once | None = None
    origin: Origin = NOWHERE

    @property
    def total(self) -> int:
        """How many items it has."""
        return len(self.items) if self.upload is None else self.upload.items


class JobStore:
    """The API's side of the store."""

    def __init__(self, link: CommonLink, settings: Settings, bell: str) -> None:
        """``bell`` is the message that rings a core (see ``corelane.broker.app.bell_envelope``)."""
        self._link = link
        self._settings = settings
        self._bell = bell

    async def admit(self, model: str, key: str = "", owner: str = PUBLIC) -> Admission:
        """Return what there is to know before an owner's job is submitted; no version if the model means nothing.

        Where the model is an alias of several versions, the key chooses.
        """
        return await look(self._link, model, key, owner)

    async def submit(self, submission: Submission, admission: Admission) -> JobRecord:
        """Write payloads, then job, refs and bells in one step. Idempotent by the job's id, and by its ``once``.

        Raises TooLarge, Overloaded or DeadlineInfeasible before anything is written; VersionClosed, with nothing kept,
        if the version stopped taking jobs since it was admitted; Held if another job holds its ``once``.
        """
        estimator = Estimator(submission.contexts, submission.options.doc_stride)
        costs = [estimator.tokens(item) for item in submission.items]
        slices = list(cut_slices(costs, self._settings.slice_items, self._settings.slice_tokens))
        tokens = sum(costs) if submission.upload is None else submission.upload.tokens
        promise = await self._promise(submission, admission, tokens, len(slices))
        payloads, refs = self._slices(submission, slices)
        fields = self._fields(submission, promise)
        expires_in_ms = int(1000 * (submission.expires_in_s or 0))
        upload, once = submission.upload, submission.once
        submit = call(
            "submit",
            *refs,
            job=submission.id,
            version=submission.version,
            envelope=self._bell,
            expires_in_ms=expires_in_ms,
            file=upload and upload.name,
            file_tokens=upload and upload.tokens,
            once=once and once.key,
            fingerprint=once and once.fingerprint,
            once_ttl_s=once and once.ttl_s,
            fields=flatten(fields),
        )
        reply = await self._write(submission, payloads, submit)
        if reply[0] < 0:
            raise Held(Holder.decode(reply[1]))
        reach("submit.accepted", self._settings.armed_faults)
        return JobRecord(
            id=submission.id,
            status=JobStatus.QUEUED,
            version=submission.version,
            total=submission.total,
            created_ms=int(reply[1]),
            options=submission.options,
            metadata=dict(submission.metadata),
            owner=submission.owner,
            priority=submission.priority,
            expires_ms=None if reply[2] is None else int(reply[2]),
            promise=PromiseRecord.decode(fields["promise"]),
            labels=list(submission.labels),
            name=submission.name,
            retry_of=submission.retry_of,
        )

    async def _promise(self, submission: Submission, admission: Admission, tokens: int, slices: int) -> Promise:
        """The turn this job would get; raises what speaks against it."""
        if submission.upload is None:
            check_work(self._settings, tokens)
            await require_room(self._link, self._settings, admission, submission.owner, tokens)
        promise = make_promise(
            admission, submission.owner, submission.priority.rank, tokens, slices or submission.total
        )
        if submission.refuse_if_late and submission.expires_in_s is not None:
            require_in_time(promise, submission.expires_in_s)
        return promise

    def _slices(
        self, submission: Submission, slices: Sequence[tuple[int, int, int]]
    ) -> tuple[dict[int, bytes], list[str]]:
        """The payloads by their first items, and the refs that stand for them."""
        numbers = {context_id: number for number, context_id in enumerate(submission.contexts)}
        rows = [item_row(item, numbers) for item in submission.items]
        rank = submission.priority.rank
        payloads = {first: encode_slice(rows[first : first + count]) for first, count, _ in slices}
        refs = [
            Ref(submission.id, submission.owner, rank, first, first, count, tokens).encode()
            for first, count, tokens in slices
        ]
        return payloads, refs

    async def _write(self, submission: Submission, payloads: Mapping[int, bytes], submit: Command) -> Any:
        """Write payloads and shared contexts, then submit, in one trip."""
        written: list[Command] = []
        texts = dict(enumerate(submission.contexts.values()))
        for pattern, values in ((keys.payloads, payloads), (keys.contexts, texts)):
            if values:
                key = pattern(submission.id)
                written += [("HSET", key, *flatten(values)), ("EXPIRE", key, PAYLOAD_TTL_S)]
        if self._settings.armed_faults:
            await self._link.many(written)
            reach("submit.payloads_written", self._settings.armed_faults)
        replies = await self._link.many([*written, submit])
        return replies[-1]

    @staticmethod
    def _fields(submission: Submission, promise: Promise) -> dict[str, Any]:
        fields = {
            "owner": submission.owner,
            "priority": submission.priority.rank,
            "total": submission.total,
            "left": submission.total,
            "options": submission.options.model_dump_json(),
            "metadata": orjson.dumps(submission.metadata),
            "promise": PromiseRecord.of(promise).encode(),
        }
        if submission.webhook is not None:
            fields["webhook_url"] = submission.webhook.url
            fields["webhook_events"] = ",".join(submission.webhook.events)
        if submission.labels:
            fields["labels"] = orjson.dumps(submission.labels)
        given = {name: getattr(submission, name) for name in ("asked", "keep_s", "name", "retry_of")}
        fields |= {name: value for name, value in given.items() if value}
        if submission.upload is not None and submission.upload.results_window is not None:
            fields["results_window"] = submission.upload.results_window
        return fields | submission.origin.fields()

    async def get(self, job: str, ahead: int = 0) -> JobRecord | None:
        """A job as it stands, or None if there is none (any more).

        The results of its first items, ``ahead`` at most, are read in the same trip, for ``results`` to find.
        """
        commands: list[Command] = [("HGETALL", keys.job(job))]
        if ahead:
            commands.append(("HMGET", keys.results(job), *range(ahead)))
        raw, *outs = await self._link.many(commands)
        return JobRecord.parse(job, dict(pairs(raw)), outs[0] if outs else ()) if raw else None

    async def results(self, record: JobRecord, after: int, limit: int) -> list[dict[str, Any]]:
        """Stored results from item ``after`` on, in order, up to the first that is not final yet."""
        return await read_results(self._link, record, after, limit)

    async def drop(self, record: JobRecord, before: int) -> int:
        """Forget results of items before an index, as far as they are answered; the index of the first one kept."""
        return await drop_results(self._link, record, before)

    async def drop_final(self, job: str) -> None:
        """Forget all results of a final job, as a batch has them, but not which items a retry would ask for."""
        record = await self.get(job)
        if record is not None and record.status.is_final:
            await drop_final(self._link, record, unanswered(self._link, record), self._settings.results_ttl_s)

    async def page(self, owner: str, filters: Filters, after: str | None, limit: int) -> JobPage:
        """A page of an owner's jobs, newest first, older than the one whose id is the cursor."""
        return await list_jobs(self._link, owner, filters, after, limit)

    async def holder(self, key: str) -> Holder | None:
        """Who holds the key of a ``Once``."""
        return await find_holder(self._link, key)

    async def named(self, owner: str, name: str) -> str | None:
        """The id of the job that an owner calls so."""
        holder = await find_holder(self._link, by_name(owner, name, "").key)
        return None if holder is None else holder.subject

    def unanswered(self, record: JobRecord) -> AsyncIterator[list[int]]:
        """Indexes of a final job's items that did not succeed, in order and in parts."""
        return unanswered(self._link, record)

    async def rows(self, record: JobRecord, indexes: Sequence[int]) -> list[Row]:
        """Items of a job that has no file, as they were asked; raises ItemsLost if one is not there any more."""
        return await read_rows(self._link, record, indexes)

    async def contexts(self, job: str) -> dict[int, str]:
        """The contexts that a job's items share, by number, in order."""
        return await read_contexts(self._link, job)

    async def is_gone(self, job: str, owner: str) -> bool:
        """Whether an owner's job was there and its time is over, as far as that is remembered."""
        gone, listed = await self._link.many(
            [("GET", keys.gone(job)), ("ZSCORE", keys.owner_jobs(owner), job)],
        )
        return listed is not None or gone == owner.encode()

    async def delete(self, job: str) -> bool:
        """Leave nothing of a job, canceled first if it is open; whether there was one."""
        return bool(await self._link.run("delete", job=job, ttl=self._settings.results_ttl_s))

    async def cancel(self, job: str) -> bool | None:
        """True if the job was open and is canceled now, False if it was final, None if there is none."""
        reply = await self._link.run("cancel", job=job, ttl=self._settings.results_ttl_s)
        return None if reply < 0 else bool(reply)
