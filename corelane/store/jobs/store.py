"""The job store: admit, submit, read, list, cancel and delete jobs; read and drop results.

Every call either has its effect, or raises StoreUnavailable or StoreFull without a visible effect. Payloads of a job
that was not submitted expire within a minute.
"""

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import orjson

from corelane.domain.aliases import choose
from corelane.domain.contexts import PREFIX, digest_in
from corelane.domain.dispatch import PUBLIC, Ref, Row, encode_slice, item_row
from corelane.domain.forecast import NO_RESIDUALS, Own, Residuals, Speed, drain_rate
from corelane.domain.job_filter import ALL_OWNERS, JobFilter
from corelane.domain.jobs import JobStatus
from corelane.domain.pauses import NO_PAUSES, Pauses
from corelane.domain.reuse import MOST_CACHED_ITEMS, MOST_ITEMS, cut_out, item_digests, repeated
from corelane.settings import Settings
from corelane.settings.faults import reach
from corelane.store import keys
from corelane.store.contexts import ContextStore, unknown
from corelane.store.jobs.fields import job_fields
from corelane.store.jobs.idempotency import Held, Holder, by_name, find_holder
from corelane.store.jobs.items import AskedItem, read_item
from corelane.store.jobs.records import JobRecord, PromiseRecord
from corelane.store.jobs.results import drop_final, drop_results, read_results
from corelane.store.jobs.retries import read_contexts, read_rows, unanswered
from corelane.store.jobs.search import JobPage, find_jobs, owners_of_jobs, read_records
from corelane.store.jobs.submission import Admission, Submission
from corelane.store.jobs.tallies import count_jobs
from corelane.store.link.library import Command
from corelane.store.link.link import CommonLink, call, flatten, pairs, texts
from corelane.store.link.replicas import ReplicaGate

#: Payloads written before their job is submitted live this long, in seconds.
PAYLOAD_TTL_S = 60

#: A slice: its first item, its items, their tokens.
Cut = tuple[int, int, int]

#: Kept answers removed in one step.
CLEARED_AT_ONCE = 500

#: The reply to a job of which some items are answered or computed already, before its indexes.
KNOWN = -2

#: The reply where a stored context is not there, before the digests of those.
MISSING = -3

#: The payload of a job of one slice comes with the call that submits it, up to this size in bytes: Lua copies it.
INLINE_BYTES = 64 * 1024

#: The drain rate is measured over this many full seconds.
RATE_SECONDS = 10

#: How far off forecasts were is read once in this time, in seconds, for so many models at most.
RESIDUALS_S, MOST_RESIDUALS = 1.0, 1000


class JobStore:
    """The jobs in Redis, for those who submit them."""

    def __init__(self, link: CommonLink, settings: Settings, bell: str, gate: ReplicaGate | None = None) -> None:
        """``bell`` is the message that rings a core (see ``corelane.broker.app.bell_envelope``). With a gate, jobs are
        accepted, and ends told, once replicas hold them.
        """
        self._gate = gate
        self._link = link
        self._settings = settings
        self._cache = settings.cache
        self._bell = bell
        #: The contexts that jobs may name.
        self.contexts_kept = ContextStore(link, settings, gate)
        #: How far off forecasts were lately, by version; and when this is read again, by the model that is asked for.
        self._residuals: dict[str, Residuals] = {}
        self._residuals_due: dict[str, float] = {}

    async def admit(self, model: str, key: str = "", owner: str = PUBLIC) -> Admission:
        """Read the state of the fleet before an owner's job; the version is None if the model means none.

        Where the model is an alias of several versions, the key chooses. Writes nothing.
        """
        asks = time.monotonic() >= self._residuals_due.get(model, 0.0)
        ask = {"model": model, "owner": owner, "residuals": asks}
        found, owed, unfed, open_jobs, own, paused = await self._link.run("admit", **ask)
        if asks and found:
            self._keep_residuals(model, {version.decode(): texts for version, *_, texts in found})
        speeds = {version.decode(): its_speeds for version, _, its_speeds, *_ in found}
        version = next(iter(speeds), None)
        if len(speeds) > 1:
            version = choose({version.decode(): float(weight) for version, weight, *_ in found}, key)
        idle = {version.decode(): int(cores) for version, _, _, cores, _ in found}
        pauses = Pauses.decode(texts(paused)) if paused else NO_PAUSES
        return Admission(
            version,
            _accounts(owed),
            _accounts(unfed),
            [Speed.decode(speed.decode()) for speed in (speeds[version] if version else ()) if speed is not None],
            [int(count) for count in open_jobs],
            bool(version and speeds[version]),
            [Own(*map(int, counts)) for counts in own],
            idle[version] if version else 0,
            self._residuals.get(version or "", NO_RESIDUALS),
            pauses,
            pauses.against(version or "", owner) if paused else None,
        )

    def _keep_residuals(self, model: str, found: Mapping[str, Sequence[bytes]]) -> None:
        """Keep the residuals of the versions that a model means, so that not every job reads them."""
        if len(self._residuals_due) >= MOST_RESIDUALS:
            self._residuals_due.clear()
            self._residuals.clear()
        self._residuals_due[model] = time.monotonic() + RESIDUALS_S
        for version, kept in found.items():
            self._residuals[version] = Residuals.decode(pairs(kept))

    async def drain_rate(self, speeds: Sequence[Speed]) -> float:
        """Return the tokens a second that the fleet answers; ``speeds`` stand for the cores if none is known."""
        answered, known = await self._link.run("drain_rates", seconds=RATE_SECONDS)
        decoded = [Speed.decode(speed.decode()) for speed in known if speed is not None]
        return drain_rate([int(tokens) for tokens in answered], decoded or speeds)

    async def owed(self) -> dict[tuple[str, int], int]:
        """Return outstanding tokens, by owner and priority."""
        return _accounts(await self._link("HGETALL", keys.OWED))

    async def submit(
        self,
        submission: Submission,
        version: str,
        slices: Sequence[tuple[int, int, int]],
        promise: PromiseRecord | None,
    ) -> JobRecord:
        """Write job, refs and bells in one step, with the payload or after several. Idempotent by the job's id, and by
        its ``once``.

        Raise VersionClosed, with nothing written, if the version stopped taking jobs since it was admitted; Held if
        another job holds its ``once``; UnknownContext if a stored context it names is gone; NotReplicated if it is
        written and replicas do not hold it.
        """
        head, file, once = submission.head, submission.file, submission.once
        stored = [digest_in(each) for each in submission.known]
        labels = list(dict.fromkeys(head.labels))
        total = len(submission.items) if file is None else file.items
        digests = self._digests(submission, version)
        slices = list(cut_out(slices, alone)) if (alone := repeated(digests)) else slices
        fields = {"total": total, "left": total} | job_fields(submission, labels, promise, digests)
        named: dict[str, Any] = {
            "job": submission.id,
            "version": version,
            "envelope": self._bell,
            "submit_us": _submit_us(submission),
            "expires_in_ms": int(1000 * (head.expires_in_s or 0)),
            "file": file and file.name,
            "file_tokens": file and file.tokens,
            "once": once and once.key,
            "fingerprint": once and once.fingerprint,
            "once_ttl_s": once and once.ttl_s,
            "input": submission.input_url and True,
            "stored": stored or None,
            "is_retry": submission.retry_of and True,
            "owner": submission.owner if stored else None,
            "fields": flatten(fields),
        }
        if digests:
            rank, ttl = str(head.priority.rank), self._settings.results_ttl_s
            shared = {"digests": "".join(digests), "owner": submission.owner, "priority": rank, "ttl": ttl}
            named |= shared | {"is_cut": total == 1, "cache": self._cache}
        reply = await self._write(submission, slices, named)
        if reply[0] == KNOWN:
            reply = await self._write(submission, list(cut_out(slices, reply[1])), named | {"is_cut": True})
        if reply[0] == MISSING:
            raise unknown(f"{PREFIX}{digest.decode()}" for digest in reply[1:])
        if reply[0] < 0:
            raise Held(Holder.decode(reply[1]))
        if self._gate is not None:
            await self.confirm(submission.id)
        if self._settings.armed_faults:
            reach("submit.accepted", self._settings.armed_faults)
        if reply[0] > 0 and reply[3] and (ended := await self.get(submission.id, self._settings.inline_results)):
            return ended
        return JobRecord(
            id=submission.id,
            status=JobStatus.QUEUED,
            version=version,
            total=total,
            created_ms=int(reply[1]),
            options=head.options,
            metadata=dict(head.metadata),
            owner=submission.owner,
            priority=head.priority,
            expires_ms=None if reply[2] is None else int(reply[2]),
            promise=promise,
            labels=labels,
            name=submission.name,
            retry_of=submission.retry_of,
            input_url=submission.input_url,
            output_url=head.output_url,
        )

    def _slices(
        self, submission: Submission, slices: Sequence[tuple[int, int, int]]
    ) -> tuple[dict[int, bytes], list[str]]:
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

    def _digests(self, submission: Submission, version: str) -> list[str]:
        """Return the digests by which a job's items are found to be equal to others; none if it takes no part."""
        items, head = submission.items, submission.head
        most = MOST_CACHED_ITEMS if self._cache else MOST_ITEMS
        if not (head.reuse and self._settings.reuse and 0 < len(items) <= most):
            return []
        return item_digests(submission.owner, version, head.options, items, head.contexts or {})

    async def _write(self, submission: Submission, slices: Sequence[Cut], named: dict[str, Any]) -> Any:
        """Submit, with the payload if that is small and the only one; else write payloads and shared contexts first, in
        the same trip.
        """
        payloads, refs = self._slices(submission, slices)
        is_inline = len(payloads) == 1 and not submission.head.contexts and fits_inline(*payloads.values())
        if is_inline:
            return await self._link(*call("submit", *refs, *payloads.values(), firsts=list(payloads), **named))
        submit = call("submit", *refs, **named)
        written: list[Command] = []
        texts = dict(enumerate((submission.head.contexts or {}).values()))
        for pattern, values in ((keys.payloads, payloads), (keys.contexts, texts)):
            if values:
                key = pattern % submission.id
                written += [("HSET", key, *flatten(values)), ("EXPIRE", key, PAYLOAD_TTL_S)]
        if self._settings.armed_faults:
            await self._link.many(written)
            reach("submit.payloads_written", self._settings.armed_faults)
        replies = await self._link.many([*written, submit])
        return replies[-1]

    async def get(self, job: str, ahead: int = 0) -> JobRecord | None:
        """Return a job as it stands, or None if there is none.

        The results of its first items, ``ahead`` at most, are read in the same trip, for a later call of ``results``.
        """
        commands: list[Command] = [("HGETALL", keys.job % job)]
        if ahead:
            commands.append(("HMGET", keys.results % job, *range(ahead)))
        raw, *outs = await self._link.many(commands)
        record = JobRecord.parse(job, dict(pairs(raw)), outs[0] if outs else ()) if raw else None
        if self._gate is not None and record is not None and record.finished_ms is not None:
            await self._gate.confirm(keys.job(job), "finished_ms")
        return record

    async def read_told(self, job: str, told: str) -> JobRecord | None:
        """Return a final job from what was published at its end; None if it has to be read."""
        try:
            fields, out = orjson.loads(told)
            raw = {name.encode(): value.encode() for name, value in pairs(fields)}
        except ValueError:  # A text that is not UTF-8 stands in it.
            return None
        if self._gate is not None:
            await self._gate.confirm(keys.job(job), "finished_ms")
        return JobRecord.parse(job, raw, [out.encode() if out else None])

    async def confirm(self, job: str) -> None:
        """Return once replicas hold a job, where that is asked for; raise NotReplicated if they do not in time."""
        if self._gate is not None:
            await self._gate.confirm(keys.job(job), "status")

    async def results(self, record: JobRecord, after: int, limit: int) -> list[dict[str, Any]]:
        """Return results from item ``after`` on, in order, up to the first that is not final yet."""
        return await read_results(self._link, record, after, limit)

    async def drop(self, record: JobRecord, before: int) -> int:
        """Drop results before an item, as far as they are answered; return the index of the first one kept."""
        return await drop_results(self._link, record, before)

    async def unread_inputs(self) -> int:
        """Return how many jobs wait for their input to be read."""
        return int(await self._link("ZCARD", keys.READING))

    async def drop_final(self, job: str) -> None:
        """Drop all results of a final job, which its batch has copied; keep which items a retry would ask for."""
        record = await self.get(job)
        if record is not None and record.status.is_final:
            await drop_final(self._link, record, unanswered(self._link, record), self._settings.results_ttl_s)

    async def page(self, owner: str, wanted: JobFilter, after: str | None, limit: int) -> JobPage:
        """Return a page of the jobs of an owner, or of ALL_OWNERS, that a filter takes: newest first, older than the
        one whose id is the cursor. The filter's own ``owner`` is not looked at.
        """
        return await find_jobs(self._link, owner, wanted, after, limit, self._settings.cell)

    async def records(self, jobs: Sequence[str]) -> list[JobRecord]:
        """Return jobs as they stand, in order, as far as they are there."""
        return await read_records(self._link, jobs)

    async def tallies(self, owner: str) -> dict[str, int] | None:
        """Return how many jobs of an owner, or of ALL_OWNERS, are in each state; None if that is not known yet."""
        return await count_jobs(self._link, [owner] if owner != ALL_OWNERS else await owners_of_jobs(self._link))

    async def holder(self, key: str) -> Holder | None:
        """Return the holder of a ``Once``'s key, or None."""
        return await find_holder(self._link, key)

    async def named(self, owner: str, name: str) -> str | None:
        """Return the id of the job with an owner's own name, or None."""
        holder = await find_holder(self._link, by_name(owner, name, "").key)
        return None if holder is None else holder.subject

    async def signs_webhooks(self, owner: str) -> bool:
        """Tell whether an owner has a webhook secret of its own."""
        return bool(await self._link("HEXISTS", keys.SECRETS, owner))

    def unanswered(self, record: JobRecord) -> AsyncIterator[list[int]]:
        """Yield the indexes of a final job's items that did not succeed, in order and in parts."""
        return unanswered(self._link, record)

    async def rows(self, record: JobRecord, indexes: Sequence[int]) -> list[Row]:
        """Return items of a job that has no file; raise ItemsLost if one is missing."""
        return await read_rows(self._link, record, indexes)

    async def item(self, record: JobRecord, index: int) -> AskedItem | None:
        """Return what one item of a job asked, or None if that is not kept."""
        return await read_item(self._link, record, index, self._settings)

    async def contexts(self, job: str) -> dict[int, str]:
        """Return the contexts that a job's items share, by number, in order."""
        return await read_contexts(self._link, job)

    async def is_gone(self, job: str, owner: str) -> bool:
        """Return whether an owner's job existed and has expired, as far as that is remembered."""
        gone, listed = await self._link.many(
            [("GET", keys.gone(job)), ("ZSCORE", keys.owner_jobs(owner), job)],
        )
        return listed is not None or gone == owner.encode()

    async def clear_cache(self, owner: str) -> None:
        """Forget the answers that are kept for equal items of an owner, or of ALL_OWNERS."""
        if owner == ALL_OWNERS:
            # None counts any more; the keeper removes them.
            await self._link("SET", keys.CACHE_SINCE, await self._link.now_ms())
            return
        while await self._link.run("clear_cache", owner=owner, most=CLEARED_AT_ONCE) == CLEARED_AT_ONCE:
            pass

    async def delete(self, job: str) -> bool:
        """Delete a job, canceled first if it is open; return whether there was one."""
        return bool(await self._link.run("delete", job=job, ttl=self._settings.results_ttl_s))

    async def cancel(self, job: str) -> bool | None:
        """Return True if the job was open and is canceled now, False if it was final, None if there is none."""
        return (await self.cancel_all([job]))[0]

    async def cancel_all(self, jobs: Sequence[str]) -> list[bool | None]:
        """Cancel jobs in one trip; return for each what ``cancel`` would."""
        ttl = self._settings.results_ttl_s
        replies = await self._link.many([call("cancel", job=job, ttl=ttl) for job in jobs])
        return [None if reply < 0 else bool(reply) for reply in replies]

    async def retryable(self, records: Sequence[JobRecord]) -> list[tuple[bool, bool]]:
        """Return for each job whether another retries it, and whether items of it are in Redis."""
        holders = await self._link.many([("GET", keys.retry(record.id)) for record in records])
        made = [None if text is None else Holder.decode(text).subject for text in holders]
        found = await self._link.many(
            [("EXISTS", keys.payloads(record.id)) for record in records]
            + [("EXISTS", keys.job(job or "none")) for job in made]
        )
        return [(bool(retry), bool(items)) for items, retry in zip(found[: len(made)], found[len(made) :], strict=True)]


def fits_inline(payload: bytes) -> bool:
    """Return whether a payload comes with the call that submits its job."""
    return len(payload) <= INLINE_BYTES


def _submit_us(submission: Submission) -> int:
    """Return the microseconds since the request of a submission came; 0 without one."""
    received = submission.request.received
    return 0 if received is None else int(1_000_000 * (time.perf_counter() - received))


def _accounts(flat: Sequence[bytes]) -> dict[tuple[str, int], int]:
    """Decode the store's OWNER:P and tokens."""
    accounts = {}
    for name, tokens in pairs(flat):
        owner, _, priority = name.decode().rpartition(":")
        accounts[owner, int(priority)] = int(tokens)
    return accounts
