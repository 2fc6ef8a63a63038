"""JobStore: jobs as the API sees them. Submit, look, read results, cancel, wait.

Every call either has its effect or raises StoreUnavailable / StoreFull having had none that anyone can see;
payloads of a job that never came to be expire within a minute.
"""

import math
from bisect import bisect_right
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import redis.exceptions

from corelane.errors import Overloaded
from corelane.jobs import Item, JobStatus, Options, Priority, Webhook, unanswered_result
from corelane.lanes import Ref, cut_slices, estimate_tokens
from corelane.settings import Settings
from corelane.store.connections import AsyncClient, evalsha, store_errors
from corelane.store.records import JobRecord
from corelane.store.scripts import load_scripts

#: Payloads written before their job is submitted live this long, in seconds.
PAYLOAD_TTL_S = 60

#: The drain rate is measured over this many full seconds.
RATE_SECONDS = 10

#: Nobody is asked to come back later than this, in seconds.
MAX_RETRY_AFTER_S = 3600

#: Slices whose results are fetched at a time while results are read in order.
SLICES_PER_READ = 32


@dataclass(frozen=True, slots=True)
class Submission:
    """A job about to be: everything checked, nothing written."""

    id: str
    version: str
    items: Sequence[Item]
    options: Options
    metadata: dict[str, str]
    webhook: Webhook | None
    priority: Priority = Priority.NORMAL
    expires_in_s: float | None = None


class JobStore:
    """The API's side of the store."""

    def __init__(self, client: AsyncClient, settings: Settings, bell: str) -> None:
        """``bell`` is the message that rings a core (see ``corelane.broker.bell_envelope``)."""
        self._redis = client
        self._settings = settings
        self._bell = bell

    async def submit(self, submission: Submission) -> JobRecord:
        """Write payloads, then job, refs and bells in one step. Idempotent by the job's id."""
        items = submission.items
        costs = [estimate_tokens(item.question, item.context) for item in items]
        await self._require_room(sum(costs))
        slices = list(cut_slices(costs, self._settings.slice_items, self._settings.slice_tokens))
        payloads = {
            number: orjson.dumps([[item.id, item.question, item.context] for item in items[first : first + count]])
            for number, (first, count, _) in enumerate(slices)
        }
        refs = [
            Ref(submission.id, number, 0, first, count, tokens).encode()
            for number, (first, count, tokens) in enumerate(slices)
        ]
        cuts = tuple(first for first, _, _ in slices)
        fields = self._fields(submission, len(items), cuts)
        expires_in_ms = int(1000 * (submission.expires_in_s or 0))
        head = (submission.id, submission.version, self._bell, expires_in_ms, len(fields) // 2)
        reply = await self._write(submission.id, payloads, [*head, *fields, *refs])
        return JobRecord(
            id=submission.id,
            status=JobStatus.QUEUED,
            version=submission.version,
            total=len(items),
            created_ms=int(reply[1]),
            options=submission.options,
            metadata=submission.metadata,
            cuts=cuts,
            priority=submission.priority,
            expires_ms=None if reply[2] is None else int(reply[2]),
        )

    async def _write(self, job: str, payloads: dict[int, bytes], args: Sequence[Any]) -> Any:
        """Payloads, then the submit script, in one trip; the script alone once more if Redis did not know it."""
        key = f"cl:in:{{{job}}}"
        async with self._redis.pipeline(transaction=False) as pipe:
            pipe.hset(key, mapping=payloads).expire(key, PAYLOAD_TTL_S)
            pipe.execute_command(*evalsha(load_scripts()["submit"], args))
            with store_errors():
                *written, reply = await pipe.execute(raise_on_error=False)
                for failure in (each for each in written if isinstance(each, Exception)):
                    raise failure
                if isinstance(reply, redis.exceptions.NoScriptError):
                    return await self._run("submit", *args)
                if isinstance(reply, Exception):
                    raise reply
        return reply

    async def _require_room(self, tokens: int) -> None:
        """Refuse what would pass the bound on waiting work, before anything is written; raises Overloaded."""
        async with self._redis.pipeline(transaction=False) as pipe:
            with store_errors():
                waiting, (seconds, _) = await pipe.hvals("cl:tokens").time().execute()
                excess = sum(map(int, waiting)) + tokens - self._settings.max_outstanding_tokens
                if excess <= 0:
                    return
                keys = [f"cl:rate:{second}" for second in range(int(seconds) - RATE_SECONDS, int(seconds))]
                answered = await self._redis.mget(keys)
        retry_after_s = seconds_until(excess, sum(int(count) for count in answered if count) / RATE_SECONDS)
        raise Overloaded(
            f"{self._settings.max_outstanding_tokens:,} tokens may wait and this job would pass that by {excess:,}; "
            f"nothing was kept, come back in {retry_after_s} s",
            retry_after_s,
        )

    @staticmethod
    def _fields(submission: Submission, total: int, cuts: Sequence[int]) -> list[Any]:
        fields = [
            *("priority", submission.priority.rank),
            *("total", total),
            *("left", total),
            *("options", submission.options.model_dump_json()),
            *("metadata", orjson.dumps(submission.metadata)),
            *("cuts", " ".join(map(str, cuts))),
        ]
        return [*fields, "webhook_url", submission.webhook.url] if submission.webhook else fields

    async def get(self, job: str) -> JobRecord | None:
        """A job as it stands, or None if there is none (any more)."""
        with store_errors():
            raw = await self._redis.hgetall(f"cl:job:{{{job}}}")
        return JobRecord.parse(job, raw) if raw else None

    async def results(self, record: JobRecord, after: int, limit: int) -> list[dict[str, Any]]:
        """Stored results from item ``after`` on, in order, up to the first that is not final yet."""
        found: list[dict[str, Any]] = []
        at = after
        while at < record.total and len(found) < limit:
            stretch = await self._read_stretch(record, at, min(limit - len(found), record.total - at))
            found += stretch
            at += len(stretch)
            if not stretch:
                break
        return found

    async def _read_stretch(self, record: JobRecord, at: int, limit: int) -> list[dict[str, Any]]:
        """Results of the next few slices; falls back to single items where a slice was cut up."""
        number = bisect_right(record.cuts, at) - 1
        numbers = range(number, min(number + SLICES_PER_READ, len(record.cuts)))
        blobs = await self._blobs(record.id, [record.cuts[n] for n in numbers])
        found: list[dict[str, Any]] = []
        for n, blob in zip(numbers, blobs, strict=True):
            first, end = record.cuts[n], record.cuts[n + 1] if n + 1 < len(record.cuts) else record.total
            results = orjson.loads(blob) if blob is not None else []
            if len(results) < end - first:
                results = await self._read_singles(record, n, first, end)
            found += results[max(0, at - first) :]
            if len(results) < end - first or len(found) >= limit:
                break
        return found[:limit]

    async def _read_singles(self, record: JobRecord, number: int, first: int, end: int) -> list[dict[str, Any]]:
        """A slice's results item by item, up to the first gap; in a final job gaps are what was never answered."""
        blobs = await self._blobs(record.id, list(range(first, end)))
        results: list[dict[str, Any]] = []
        ids: list[str | None] | None = None
        for index, blob in zip(range(first, end), blobs, strict=True):
            if blob is not None:
                results += orjson.loads(blob)
            elif record.status.is_final:
                ids = await self._item_ids(record.id, number, end - first) if ids is None else ids
                results.append(unanswered_result(index, ids[index - first], record.status))
            else:
                break
        return results

    async def _blobs(self, job: str, firsts: list[int]) -> list[bytes | None]:
        with store_errors():
            blobs: list[bytes | None] = await self._redis.hmget(f"cl:out:{{{job}}}", [str(f) for f in firsts])
        return blobs

    async def _item_ids(self, job: str, number: int, count: int) -> list[str | None]:
        with store_errors():
            blob = await self._redis.hget(f"cl:in:{{{job}}}", str(number))
        return [item[0] for item in orjson.loads(blob)] if blob else [None] * count

    async def cancel(self, job: str) -> bool | None:
        """True if the job was open and is canceled now, False if it was final, None if there is none."""
        reply = await self._run("cancel", job, self._settings.results_ttl_s)
        return None if reply < 0 else bool(reply)

    async def finished_jobs(self) -> AsyncIterator[str]:
        """Ids of jobs as they become final, for as long as the connection lasts."""
        async with self._redis.pubsub() as channel:
            with store_errors():
                await channel.subscribe("cl:done")
                yield ""
                while True:
                    message = await channel.get_message(ignore_subscribe_messages=True, timeout=2)
                    if message is not None:
                        yield message["data"].decode()

    async def _run(self, name: str, *args: Any) -> Any:
        """A script; repeated once if Redis does not know it yet, which it then did not run."""
        script = load_scripts()[name]
        with store_errors():
            try:
                return await self._redis.execute_command(*evalsha(script, args))
            except redis.exceptions.NoScriptError:
                await self._redis.script_load(script.text)
                return await self._redis.execute_command(*evalsha(script, args))


def seconds_until(tokens: int, tokens_per_s: float) -> int:
    """When so many tokens will have been answered at the measured rate; between 1 s and an hour."""
    return max(1, min(MAX_RETRY_AFTER_S, math.ceil(tokens / tokens_per_s))) if tokens_per_s else MAX_RETRY_AFTER_S
