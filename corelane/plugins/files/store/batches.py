"""Batches: their records, the lease of the keeper that runs them, and their steps, each of which is taken once.

Only the holder of the lease takes a batch's steps, and only from the status that it read. So a keeper that lost its
lease changes nothing. Cancellation needs no lease: callers cancel batches themselves.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import orjson

from corelane.domain.batches import (
    FINAL,
    Batch,
    BatchError,
    BatchErrors,
    BatchRequest,
    BatchStatus,
    RequestCounts,
    window_s,
)
from corelane.domain.jobs import JobStatus
from corelane.domain.request_facts import NO_REQUEST, RequestFacts
from corelane.domain.usage import Used
from corelane.plugins.files.store import keys as own_keys
from corelane.plugins.files.store.files import owned_ids
from corelane.store import keys
from corelane.store.jobs.idempotency import Held, Holder, Once, find_holder
from corelane.store.link.link import CommonLink, Lease, call, flatten, texts
from corelane.store.link.replicas import ReplicaGate

#: The right to run batches. A keeper that has not extended it for this long is considered dead.
BATCHER = Lease(own_keys.BATCHER, ttl_ms=10_000)

JOB_FIELDS = ("succeeded", "failed", "usage", "status")


@dataclass(frozen=True, slots=True)
class Group:
    """Lines for one model and its options, and their job, or the code and the sentence why it is ``refused``."""

    job: str
    model: str
    options: str
    items: int
    tokens: int
    lines: int
    refused: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that a step registers; ``fields`` as in ``corelane.plugins.files.store.files.file_fields``."""

    id: str
    ttl_ms: int
    fields: list[str]


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """One batch as it was when it was read. ``times`` holds when it reached each status, in milliseconds.

    ``plan`` is the file that says how each line is answered. Before the input was read, ``plan`` and ``lines`` are
    None, and there are no ``groups``. ``bad`` counts lines that cannot be asked.
    """

    id: str
    owner: str
    status: BatchStatus
    input_file: str
    endpoint: str
    window: str
    created_ms: int
    expires_ms: int
    times: Mapping[str, int]
    metadata: dict[str, str] | None = None
    output_ttl_s: int | None = None
    plan: str | None = None
    lines: int | None = None
    bad: int = 0
    groups: tuple[Group, ...] = ()
    counts: RequestCounts | None = None
    #: The statuses of its jobs, if it is open; without those that were deleted.
    statuses: tuple[JobStatus, ...] = ()
    #: Usage of its jobs; None before there are any.
    used: Used | None = None
    errors: tuple[BatchError, ...] = ()
    model: str | None = None
    output_file: str | None = None
    error_file: str | None = None
    origin: RequestFacts = NO_REQUEST
    webhook_url: str = ""
    webhook_events: tuple[str, ...] = ()

    @classmethod
    def parse(cls, batch: str, values: Mapping[str, str]) -> "BatchRecord":
        """Read a batch's hash."""
        groups = orjson.loads(values.get("groups", "[]"))
        times = {key[:-3]: int(value) for key, value in values.items() if key.endswith("_ms")}
        return cls(
            id=batch,
            owner=values["owner"],
            status=cast(BatchStatus, values["status"]),
            input_file=values["input_file"],
            endpoint=values["endpoint"],
            window=values["window"],
            created_ms=times["created"],
            expires_ms=times["expires"],
            times=times,
            metadata=orjson.loads(values["metadata"]),
            output_ttl_s=int(values["output_ttl_s"]) if "output_ttl_s" in values else None,
            plan=values.get("plan"),
            lines=int(values["lines"]) if "lines" in values else None,
            bad=int(values.get("bad", 0)),
            groups=tuple(
                Group(**(group | {"refused": group["refused"] and tuple(group["refused"])})) for group in groups
            ),
            counts=RequestCounts.model_validate_json(values["counts"]) if "counts" in values else None,
            used=Used.decode(values["usage"]) if "usage" in values else None,
            errors=tuple(BatchError.model_validate(error) for error in orjson.loads(values.get("errors", "[]"))),
            model=values.get("model"),
            output_file=values.get("output_file"),
            error_file=values.get("error_file"),
            origin=RequestFacts(values.get("request_id", ""), values.get("traceparent", "")),
            webhook_url=values.get("webhook_url", ""),
            webhook_events=tuple(values.get("webhook_events", "").split(",")),
        )

    @property
    def is_final(self) -> bool:
        """Return whether nothing can change any more."""
        return self.status in FINAL

    def describe(self) -> Batch:
        """Return the batch as callers see it."""
        times: dict[str, Any] = {f"{name}_at": ms // 1000 for name, ms in self.times.items()}
        return Batch(
            id=self.id,
            endpoint=self.endpoint,
            errors=BatchErrors(data=list(self.errors)) if self.errors else None,
            input_file_id=self.input_file,
            completion_window=self.window,
            status=self.status,
            output_file_id=self.output_file,
            error_file_id=self.error_file,
            **{name: at for name, at in times.items() if name in Batch.model_fields},
            request_counts=self.counts or RequestCounts(),
            metadata=self.metadata,
            jobs=[group.job for group in self.groups if group.refused is None],
            usage=None if self.used is None else self.used.describe_batch(),
        )


class BatchStore:
    """The batches, for the API and the keeper."""

    def __init__(self, link: CommonLink, gate: ReplicaGate | None = None) -> None:
        self._link, self._gate = link, gate
        #: The fence of this process' lease: steps with an earlier fence are refused.
        self._fence = 0

    async def begin(
        self,
        batch: str,
        owner: str,
        request: BatchRequest,
        once: Once | None = None,
        origin: RequestFacts = NO_REQUEST,
        file: NewFile | None = None,
    ) -> None:
        """Store a new batch, with its input if that is a new ``file``. Idempotent by its id; raise Held."""
        expiry = request.output_expires_after
        fields = {
            "input_file": request.input_file_id if file is None else file.id,
            "endpoint": request.endpoint,
            "window": request.completion_window,
            "metadata": orjson.dumps(request.metadata),
            **({} if expiry is None else {"output_ttl_s": expiry.seconds}),
            **({} if request.model is None else {"model": request.model}),
        }
        if request.webhook is not None:
            fields |= {"webhook_url": request.webhook.url, "webhook_events": ",".join(request.webhook.events)}
        whence = {"request_id": origin.request_id, "traceparent": origin.traceparent}
        fields |= {name: text for name, text in whence.items() if text}
        holder = await self._link.run(
            "begin_batch",
            batch=batch,
            owner=owner,
            window_ms=1000 * window_s(request.completion_window),
            once=once and once.key,
            fingerprint=once and once.fingerprint,
            once_ttl_s=once and once.ttl_s,
            fields=flatten(fields),
            file=file,
        )
        if holder is not None:
            raise Held(Holder.decode(holder))

    async def holder(self, once: Once) -> Holder | None:
        """Return which batch holds the key of ``once``, if there is one."""
        return await find_holder(self._link, once.key)

    async def get(self, batch: str) -> BatchRecord | None:
        """Read a batch with its current counts, or None; with a replica gate, wait until replicas have its status."""
        found = await self.get_all([batch])
        if not found:
            return None
        if self._gate is not None:
            entered = "created" if found[0].status == "validating" else found[0].status
            await self._gate.confirm(own_keys.batch(batch), f"{entered}_ms")
        return found[0]

    async def get_all(self, batches: Sequence[str]) -> list[BatchRecord]:
        """Read batches with their current counts; missing ones are left out."""
        raws = await self._link.many([("HGETALL", own_keys.batch(batch)) for batch in batches])
        records = [BatchRecord.parse(batch, texts(raw)) for batch, raw in zip(batches, raws, strict=True) if raw]
        jobs = [group.job for record in records if record.counts is None for group in record.groups]
        by_job = dict(
            zip(jobs, await self._link.many([("HMGET", keys.job(job), *JOB_FIELDS) for job in jobs]), strict=True)
        )
        return [_counted(record, by_job) for record in records]

    async def page(self, owner: str, after: str | None, limit: int) -> list[BatchRecord]:
        """Read an owner's batches, newest first; with ``after``, those that follow this id."""
        return await self.get_all(await owned_ids(self._link, own_keys.batches(owner), after, limit, "desc"))

    async def cancel(self, batch: str) -> None:
        """End a batch with the results that it has. A batch that is final or being finished does not change."""
        await self._link.run("cancel_batch", batch=batch)

    async def open_batches(self) -> list[BatchRecord]:
        """Read the batches that are not final, oldest first."""
        ids = await self._link("ZRANGE", own_keys.BATCHING, 0, -1)
        return await self.get_all([each.decode() for each in ids])

    async def open_by_owner(self) -> dict[str, list[str]]:
        """Return the ids of the batches that are not final by their owners, oldest first."""
        ids = await self._link("ZRANGE", own_keys.BATCHING, 0, -1)
        owners = await self._link.many([("HGET", own_keys.batch(each.decode()), "owner") for each in ids])
        found: dict[str, list[str]] = {}
        for each, owner in zip(ids, owners, strict=True):
            found.setdefault((owner or b"").decode(), []).append(each.decode())
        return found

    async def take_turn(self, name: str) -> bool:
        """Take or extend the lease; return whether this process works on batches."""
        self._fence, _ = await self._link.many([BATCHER.take(name), call("note_round", name="batches")])
        return self._fence > 0

    async def end_turn(self, name: str) -> None:
        """Release the lease, so that another keeper can work on batches."""
        await self._link(*BATCHER.release(name))

    async def step(
        self,
        record: BatchRecord,
        name: str,
        to: BatchStatus,
        fields: Mapping[str, Any],
        files: Sequence[NewFile] = (),
        ttl_s: int = 0,
    ) -> bool:
        """Move a batch on from the status that was read; False if it has changed, or another keeper has the lease."""
        written = {
            key: value if isinstance(value, str) else orjson.dumps(value).decode() for key, value in fields.items()
        }
        event = None
        if ttl_s and f"batch.{to}" in record.webhook_events:
            now_ms = await self.now_ms()
            values = texts(await self._link("HGETALL", own_keys.batch(record.id))) | written
            ended = BatchRecord.parse(record.id, values | {"status": to, f"{to}_ms": str(now_ms)}).describe()
            whence = (("x-request-id", record.origin.request_id), ("traceparent", record.origin.traceparent))
            headers = orjson.dumps({name: text for name, text in whence if text}).decode()
            event = {"at_ms": now_ms, "url": record.webhook_url, "data": ended.model_dump_json(), "headers": headers}
        moved = await self._link.run(
            "step_batch",
            batch=record.id,
            holder=name,
            fence=self._fence,
            **{"from": record.status, "to": to},
            ttl_ms=ttl_s * 1000,
            fields=flatten(written),
            files=files,
            event=event,
        )
        return bool(moved)

    async def hold_results(self, jobs: Sequence[str], ttl_s: int) -> None:
        """Keep the results of finished jobs for ``ttl_s`` from now, because their batch has not read them yet."""
        kinds = (keys.job, keys.results, keys.payloads)
        await self._link.many([("EXPIRE", key(job), ttl_s, "GT") for job in jobs for key in kinds])

    async def is_time_to_tidy(self, every_s: int) -> bool:
        """Return whether no process looked for stray files in the last ``every_s``: then the caller must look now."""
        taken = await self._link.run("write", commands=[("SET", own_keys.TIDIED, 1, "NX", "EX", every_s)])
        return taken[0] is not None

    async def now_ms(self) -> int:
        """Return the server's time."""
        return await self._link.now_ms()

    async def has_work(self, name: str = "") -> bool:
        """Return whether a batch is open or files can be deleted, and no other keeper has the lease. Note the round."""
        now = await self._link.now_ms()
        batches, retiring, tidied, holder, _ = await self._link.many(
            [
                ("ZCARD", own_keys.BATCHING),
                ("ZCOUNT", own_keys.RETIRING, "-inf", now),
                ("EXISTS", own_keys.TIDIED),
                ("GET", BATCHER.key),
                call("note_round", name="batches"),
            ]
        )
        return holder in (None, name.encode()) and bool(batches or retiring or not tidied)


def _counted(record: BatchRecord, by_job: Mapping[str, Sequence[bytes | None]]) -> BatchRecord:
    """Return a batch with its counts and usage: those it ended with, or the current ones of its jobs."""
    if record.counts is not None or record.lines is None:
        return record
    found = [by_job[group.job] for group in record.groups]
    statuses = tuple(JobStatus(status.decode()) for *_, status in found if status is not None)
    refused = sum(group.lines for group in record.groups if group.refused is not None)
    # The items of one line are not known here: the share of items that are done stands for that of lines.
    shares = [(group.lines, max(1, group.items)) for group in record.groups]
    done = list(zip(shares, found, strict=True))
    counts = RequestCounts(
        total=record.lines,
        completed=sum(int(succeeded or 0) * lines // items for (lines, items), (succeeded, *_) in done),
        failed=record.bad
        + refused
        + sum(int(failed or 0) * lines // items for (lines, items), (_, failed, *_) in done),
    )
    used = Used()
    for *_, text, _ in found:
        if text is not None:
            used.add(Used.decode(text.decode()))
    return replace(record, counts=counts, used=used, statuses=statuses)
