"""The jobs of callers: submitted, found, waited for and shown.

One subscription per process wakes the requests that wait for a job that has just become final.
"""

import asyncio
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

from starlette.types import Receive

from corelane.domain.api_keys import Caller, Scope
from corelane.domain.jobs import INLINE_RESULTS, Job, JobStatus
from corelane.errors import CorelaneError, Forbidden, JobExpired, NotFound, Unavailable
from corelane.log import Outage, get_logger
from corelane.metrics.definitions import SUBMIT_S
from corelane.settings import Settings
from corelane.store import keys
from corelane.store.fleet import Fleet
from corelane.store.jobs.idempotency import fingerprint
from corelane.store.jobs.records import JobRecord
from corelane.store.jobs.store import JobStore
from corelane.store.jobs.submission import Submission
from corelane.store.link.subscription import Channels, subscribe
from corelane.store.metrics import ProcessMetrics
from corelane.submitting.items import TolerantJobs
from corelane.submitting.ndjson import submit_file
from corelane.submitting.submitter import Submitted, Submitter
from corelane.tracing import Tracer

log = get_logger(__name__)

#: Pause before a lost subscription is renewed, in seconds.
RESUBSCRIBE_S = 0.5

#: A waiting request reads its job this often even if nothing wakes it, in seconds.
POLL_S = 5.0

#: A wait starts a task that notices a disconnect only after this time, in seconds: lone items take milliseconds.
LISTEN_AFTER_S = 0.05

#: A late job waits this long for its request to be sent again, in seconds: SDKs do that after `Retry-After`, 1 s.
AGAIN_S = 30.0

#: What equal requests have in common: the owner, the path with the model in its query, and the body.
Asked = tuple[str, bytes]


class CallerWait:
    """How long a request's caller waits, and whether the caller is still connected.

    The server reports a disconnect on the channel of the body, which nothing else reads while a route waits.
    """

    def __init__(self, seconds: float | None, receive: Receive) -> None:
        """``seconds`` is None if the caller did not ask to wait."""
        self.seconds = seconds
        self._receive = receive
        self.has_left = False

    @contextmanager
    def listening(self, event: asyncio.Event, seconds: float) -> Iterator[None]:
        """Set the event after ``seconds``. Also set it if the caller disconnects during a long wait."""
        tasks: list[asyncio.Task[None]] = []
        loop = asyncio.get_running_loop()
        timers: list[asyncio.TimerHandle] = [loop.call_later(seconds, event.set)]
        if seconds > LISTEN_AFTER_S:
            timers.append(loop.call_later(LISTEN_AFTER_S, lambda: tasks.append(loop.create_task(self._listen(event)))))
        try:
            yield
        finally:
            for timer in timers:
                timer.cancel()
            for task in tasks:
                task.cancel()

    async def _listen(self, event: asyncio.Event) -> None:
        # A body that no route reads may exceed a limit. Then the caller is still there, and nothing more is received.
        with suppress(CorelaneError):
            while (await self._receive())["type"] != "http.disconnect":
                pass
            self.has_left = True
            event.set()


class Completions:
    """The requests that wait for jobs, and the task that listens for jobs that become final."""

    def __init__(self, store: JobStore, settings: Settings) -> None:
        self._store = store
        self._redis_url = settings.redis_url
        self._waiting: dict[str, set[asyncio.Event]] = {}
        #: The message that was received at the end of a job, by job, for jobs that requests wait for.
        self._notified: dict[str, str] = {}
        self._task: asyncio.Task[None] | None = None
        self.is_closing = False
        #: The name by which jobs notify this process of their ends.
        self.listener = secrets.token_hex(8)
        self._channels = Channels(keys.done(self.listener))

    def start(self) -> None:
        """Start to listen."""
        self._task = asyncio.create_task(self._listen(), name="completions")

    def release(self) -> None:
        """End every wait, now and in the future, because the server is about to stop."""
        self.is_closing = True
        self._wake_all()

    async def close(self) -> None:
        """Stop listening and end every wait."""
        self.release()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    @contextmanager
    def watch(self, job: str, *, follows: bool = True) -> Iterator[asyncio.Event]:
        """Yield an event that is set when the job may have become final, and when all waits end.

        ``follows`` may be false for a job whose submission names this process in ``tell``.
        """
        event = asyncio.Event()
        self._waiting.setdefault(job, set()).add(event)
        if follows:
            self._channels.add(keys.done(job))
        try:
            yield event
        finally:
            self._waiting[job].discard(event)
            if not self._waiting[job]:
                del self._waiting[job]
                self._notified.pop(job, None)
                self._channels.remove(keys.done(job))

    async def wait(self, record: JobRecord, wait: CallerWait, event: asyncio.Event) -> JobRecord | None:
        """Wait until a job is final, time is over or the caller disconnects; return the job, or None if it was deleted.

        ``event`` comes from a ``watch`` that began before the record was read.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (wait.seconds or 0.0)
        found: JobRecord | None = record
        while found is not None and not found.status.is_final:
            left = deadline - loop.time()
            if left <= 0 or self.is_closing or wait.has_left:
                break
            with wait.listening(event, min(left, POLL_S)):
                await event.wait()
            event.clear()
            notified = self._notified.pop(record.id, "")
            found = await self._store.read_notified(record.id, notified) if notified else None
            found = found or await self._store.get(record.id, INLINE_RESULTS)
        return found

    def _wake_all(self) -> None:
        for events in self._waiting.values():
            for event in events:
                event.set()

    async def _listen(self) -> None:
        outage = Outage(log, "completions")

        def hear(channel: str, message: str) -> None:
            # A channel that was just subscribed to may have missed what it waits for.
            job, _, notified = (message or channel.rpartition(":")[2]).partition(" ")
            if job == self.listener:
                outage.served()
                self._wake_all()
            elif waiting := self._waiting.get(job):
                if notified:
                    self._notified[job] = notified
                for event in waiting:
                    event.set()

        while True:
            try:
                await subscribe(self._redis_url, self._channels, hear)
            except Unavailable as error:
                outage.lost(error.detail)
            except Exception:
                # Without this task every waiting request only polls: log the error, and listen again.
                log.exception("completions_failed")
            self._wake_all()
            await asyncio.sleep(RESUBSCRIBE_S)


class Jobs:
    """The jobs of callers, on one event loop."""

    def __init__(
        self, store: JobStore, fleet: Fleet, settings: Settings, metrics: ProcessMetrics, tracer: Tracer | None = None
    ) -> None:
        self._store = store
        self._fleet = fleet
        self._settings = settings
        self._metrics = metrics
        self.submitter = Submitter(store, fleet, settings, tracer)
        self.tolerant = TolerantJobs(settings)
        self.completions = Completions(store, settings)

    async def submit(self, submission: Submission, wait: CallerWait) -> Submitted:
        """Submit a job, and wait for it if the caller asked to."""
        with self.completions.watch(submission.id, follows=wait.seconds is not None and not submission.tell) as event:
            with self._metrics.recorder.timed(SUBMIT_S):
                if submission.file is None:
                    submitted = await self.submitter.submit(submission)
                else:
                    submitted = await submit_file(self.submitter, self._settings, submission)
            if submitted.is_replayed:
                return await self.settle(submitted, wait)
            report(submitted.record)
            record = await self.completions.wait(submitted.record, wait, event)
            return replace(submitted, record=required(record, submission.id))

    async def settle(self, submitted: Submitted, wait: CallerWait) -> Submitted:
        """Log a submitted job if it is new, and wait for it if the caller asked to."""
        if not submitted.is_replayed:
            report(submitted.record)
        return replace(submitted, record=await self.wait(submitted.record, wait))

    async def wait(self, record: JobRecord, wait: CallerWait) -> JobRecord:
        """Wait for a job if the caller asked to; raise NotFound if it is deleted meanwhile."""
        if wait.seconds is None or record.status.is_final:
            return record
        with self.completions.watch(record.id) as event:
            found = await self._store.get(record.id, INLINE_RESULTS)
            return required(found and await self.completions.wait(found, wait, event), record.id)

    async def require(self, job_id: str, caller: Caller, ahead: int = 0) -> JobRecord:
        """Return the record of a caller's job, or of any job for an admin, with up to ``ahead`` of its first results.

        Raise NotFound, also for another owner's job, and JobExpired for a job that is not kept any more.
        """
        record = await self._store.get(job_id, ahead)
        if record is None and await self._store.is_gone(job_id, caller.owner):
            raise JobExpired(f"the time for which {job_id} was kept is over; it and its results are gone")
        if record is None or (record.owner != caller.owner and not self.sees_all(caller)):
            raise no_such_job(job_id)
        return record

    def sees_all(self, caller: Caller) -> bool:
        """Return whether a caller may see and change what others own: an admin, if keys are checked."""
        return self._settings.requires_keys and Scope.ADMIN in caller.scopes

    def owner_meant(self, caller: Caller, owner: str | None) -> str:
        """Return the owner whose jobs a caller asks for, by default the caller; raise Forbidden if not allowed."""
        if owner in (None, caller.owner):
            return caller.owner
        if not self.sees_all(caller):
            raise Forbidden("this API key may see its own jobs alone: `owner` needs the scope `admin` and checked keys")
        return owner or caller.owner

    async def describe(self, record: JobRecord, *, is_held: bool = False, results: bool = True) -> Job:
        """Return the job as callers see it. With ``results``, a final job includes them if they are few.

        What the job waits for is looked up, unless ``is_held`` says that a core is known to take it.
        """
        return Job.model_validate(await self.shown(record, is_held=is_held, results=results))

    async def shown(self, record: JobRecord, *, is_held: bool = False, results: bool = True) -> dict[str, Any]:
        """Return the fields of a ``Job`` that ``describe`` would return."""
        shown = record.shown()
        if not (record.status.is_final or is_held or shown["waiting_for"]):
            has_begun = record.status is JobStatus.RUNNING
            shown["waiting_for"] = await self._fleet.waiting_for(record.version, record.owner, has_begun=has_begun)
        if results and record.status.is_final and record.total <= INLINE_RESULTS and not record.dropped:
            shown["results"] = await self._store.results(record, 0, record.total)
        return shown


def report(record: JobRecord) -> None:
    """Log a job that is new."""
    log.info("job_submitted", job_id=record.id, items=record.total, version=record.version, owner=record.owner)


def required(record: JobRecord | None, job_id: str) -> JobRecord:
    """Return the record; raise NotFound if there is none."""
    if record is None:
        raise no_such_job(job_id)
    return record


def no_such_job(job_id: str) -> NotFound:
    """Return the error for an id that is unknown, or no longer known."""
    return NotFound(f"there is no job {job_id}; it never existed, or it was deleted")


def headers_of(submitted: Submitted, wait: CallerWait) -> dict[str, str]:
    """Return the response headers with the outcome of a submission and the job's address."""
    headers = {"Location": f"/v1/jobs/{submitted.record.id}"}
    if submitted.is_replayed:
        headers["Idempotent-Replayed"] = "true"
    if wait.seconds is not None:
        headers |= {"Preference-Applied": f"wait={wait.seconds:g}", "Vary": "Prefer"}
    if not submitted.record.status.is_final:
        headers["Retry-After"] = str(submitted.record.retry_after_s)
    return headers


class LateJobs:
    """Jobs of dialects that were not final in time, so that their callers were asked to send the request again.

    Such a job goes on. An equal request finds the job if it reaches this process, as over the connection an SDK keeps.
    If the request does not come again in time, nobody waits for the job and it is canceled.
    """

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self._jobs: dict[str, tuple[str, asyncio.Task[None]]] = {}

    async def keep(self, asked: Asked, job: str) -> None:
        """Keep a late job for the next equal request. Cancel the job if another one is kept for that request."""
        if (name := fingerprint(*asked)) in self._jobs:
            await self._store.cancel(job)
        else:
            self._jobs[name] = job, asyncio.create_task(self._cancel_later(name, job), name="late-job")

    async def find(self, asked: Asked) -> JobRecord | None:
        """Return the late job of an equal request, and keep it no longer; None if there is none."""
        # No name is made while no job is late: it takes 1 ms for 2 MB.
        if not self._jobs or (name := fingerprint(*asked)) not in self._jobs:
            return None
        job, canceling = self._jobs.pop(name)
        canceling.cancel()
        return await self._store.get(job)

    async def close(self) -> None:
        """Cancel the late jobs: requests that are sent again reach other processes."""
        for job, canceling in self._jobs.values():
            canceling.cancel()
            with suppress(Unavailable):
                await self._store.cancel(job)

    async def _cancel_later(self, name: str, job: str) -> None:
        await asyncio.sleep(AGAIN_S)
        del self._jobs[name]
        with suppress(Unavailable):
            await self._store.cancel(job)
