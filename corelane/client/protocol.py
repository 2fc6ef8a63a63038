"""What the client says to a service, as steps that somebody else performs: ``Client`` with threads, ``AsyncClient``
with asyncio. So every retry, wait and page is written once. No input or output here.

A talk is a generator of steps; what a step brought is sent back into it. What changes nothing, or carries a key that
makes a second time harmless, is tried again with back-off while the service is away or overloaded.
"""

import random
import time
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import httpx2

from corelane.client import endpoints
from corelane.client.endpoints import LONGEST_POLL_S, PAGE_ITEMS, Call, JobFilters
from corelane.client.wire import FOREIGN, read_problem
from corelane.domain.batches import FINAL, Batch
from corelane.domain.events import DATA, EventType, Partial, Progress
from corelane.domain.jobs import Job, Result
from corelane.errors import CorelaneError, ServiceError, ServiceUnreachable

#: Results of a running job are looked for this often, in seconds; its end is noticed at once.
FOLLOW_S = 2.0

#: Least time between two looks at a job if the service does not honour `wait`, in seconds.
LEAST_POLL_S = 0.2

#: Files asked for in one page.
PAGE_FILES = 1000

#: A batch is looked at this often in the end, in seconds.
LOOK_AT_BATCH_S = 5.0

#: Jobs asked for in one page.
PAGE_JOBS = 100

#: First pause before a call is repeated, doubled each time; and the longest, whatever the service asks for. Seconds.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.25, 60.0

#: Refusals that pass: nothing was kept, try again.
OVERLOADED = frozenset({429, 503})

#: A proxy's way of saying that the service is away: worth another try where trying twice does no harm.
AWAY = OVERLOADED | {502, 504}

#: The refusal of a job that may fit if it is sent as lines, and codes that say that another body came before.
TOO_LARGE, OTHER_BODY = 413, ("idempotency_key_reused", "name_taken")

#: The answer to who has read a job's last event: do not come back.
NOTHING_MORE = 204

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Send:
    """Send a call once; brings a Reply, or the httpx2.HTTPError that came in its place."""

    call: Call[Any]


@dataclass(frozen=True, slots=True)
class Reply:
    """What a service answered, whole."""

    status: int
    headers: Mapping[str, str]
    content: bytes


@dataclass(frozen=True, slots=True)
class Wait:
    """Why a call is not answered yet: it failed with ``reason`` and is sent again in ``seconds``.

    ``waited_s`` is how long this call has paused before, over ``attempt`` earlier failures.
    """

    reason: CorelaneError
    seconds: float
    waited_s: float = 0.0
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Pause:
    """Do nothing for a while; with a ``wait`` the caller is told why."""

    seconds: float
    wait: Wait | None = None


@dataclass(frozen=True, slots=True)
class Give:
    """Hand the caller one thing of many, and go on when asked for the next."""

    value: Any


@dataclass(frozen=True, slots=True)
class Listen:
    """Open a stream of events, in place of one that is open; brings None, or what came in its place, as for Send."""

    call: Call[Any]


@dataclass(frozen=True, slots=True)
class Hear:
    """Wait for the stream's next event; brings it, None at the end, or the httpx2.HTTPError that broke it off."""


Step = Send | Pause | Give | Listen | Hear
Talk = Generator[Step, Any, Answer]


@dataclass(frozen=True, slots=True)
class JobEvent:
    """One event of a job: its id, by which a stream is taken up again; its type; and what that type carries."""

    id: str
    type: EventType
    data: Progress | Partial | Job


@dataclass(frozen=True, slots=True)
class Service:
    """Whom to talk to, and how patiently."""

    base_url: str
    timeout_s: float
    max_retries: int

    def call(self, call: Call[Answer]) -> Talk[Answer]:
        """One call, repeated where that is safe and may help."""
        most = self.max_retries if call.max_retries is None else call.max_retries
        attempt, waited_s = 0, 0.0
        while True:
            reply: Reply | httpx2.HTTPError = yield Send(call)
            retry_after = None
            if isinstance(reply, Reply):
                if 200 <= reply.status < 300:
                    return self._read(call, reply.content)
                failure: CorelaneError = read_problem(reply.status, reply.content)
                may_help = reply.status in (AWAY if call.repeatable else OVERLOADED)
                retry_after = reply.headers.get("Retry-After")
            else:
                failure = self.unreachable(reply, call.repeatable)
                may_help = call.repeatable or isinstance(reply, httpx2.ConnectError | httpx2.ConnectTimeout)
            if not may_help or attempt >= most:
                raise failure
            pause = pause_s(attempt, retry_after, random.random())
            yield Pause(pause, Wait(failure, pause, waited_s, attempt))
            attempt, waited_s = attempt + 1, waited_s + pause

    def submit(self, call: Call[Job], as_lines: Call[Job] | None) -> Talk[Job]:
        """Hand in a job; one that is too large for a single request is sent as lines instead.

        The same is tried where the key or name stands for another body: that of the lines sent an earlier time.
        """
        try:
            return (yield from self.call(call))
        except ServiceError as refusal:
            if as_lines is None or not (refusal.status == TOO_LARGE or refusal.problem_code in OTHER_BODY):
                raise
            refused = refusal
        try:
            job = yield from self.call(as_lines)
        except ServiceError:
            raise refused from None
        if call.wait_s >= 1 and not job.status.is_final:
            job = yield from self.call(endpoints.get_job(job.id, call.wait_s))
        return job

    def wait(self, job_id: str, timeout_s: float | None) -> Talk[Job]:
        """A job once it is final, or as it stands after ``timeout_s``."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left = LONGEST_POLL_S if deadline is None else max(0.0, deadline - time.monotonic())
            job = yield from self._poll(job_id, left)
            if job.status.is_final or (deadline is not None and time.monotonic() >= deadline):
                return job

    def ask(self, call: Call[Job], as_lines: Call[Job]) -> Talk[Result]:
        """Submit a job of one item and wait for its result."""
        job = yield from self.submit(call, as_lines)
        if not job.status.is_final:
            job = yield from self.wait(job.id, None)
        found = job.results
        if not found:
            found = (yield from self.call(endpoints.results(job.id, None))).data
        if not found:
            raise self.strange(f"{job.id} has one item but no result")
        return found[0]

    def results(self, job_id: str, drop: bool) -> Talk[None]:
        """Give each result, from the first that was not dropped; follow a running job to its end."""
        after: str | None = None
        is_final = False
        while True:
            page = yield from self.call(endpoints.results(job_id, after))
            for result in page.data:
                yield Give(result)
            if drop and page.data:
                yield from self.call(endpoints.drop_results(job_id, page.data[-1].index + 1))
            if not page.has_more or page.next is None:
                return
            after = page.next
            if is_final and not page.data:
                raise self.strange(f"{job_id} is final but its results end at item {after}")
            if len(page.data) < PAGE_ITEMS:
                is_final = (yield from self._poll(job_id, FOLLOW_S)).status.is_final

    def events(self, job_id: str, after: str | None) -> Talk[None]:
        """Give each event of a job once, in order, to its end; a stream that breaks is taken up where it broke."""
        attempt = 0
        while True:
            opened: Reply | httpx2.HTTPError | None = yield Listen(endpoints.events(job_id, after))
            pause_ms = None
            if isinstance(opened, Reply):
                if opened.status == NOTHING_MORE:
                    return
                failure: CorelaneError = read_problem(opened.status, opened.content)
                if opened.status not in AWAY:
                    raise failure
            elif opened is not None:
                failure = self.unreachable(opened, True)
            else:
                failure = ServiceUnreachable(f"{self.base_url} broke off its events")
                while isinstance(heard := (yield Hear()), httpx2.ServerSentEvent):
                    pause_ms = heard.retry if heard.retry is not None else pause_ms
                    after = heard.id or after
                    if heard.event in DATA:
                        attempt = 0
                        event = self._event(heard)
                        yield Give(event)
                        if event.type is EventType.COMPLETED:
                            return
                if heard is not None:
                    failure = self.unreachable(heard, True)
            if attempt >= self.max_retries:
                raise failure
            pause = pause_s(attempt, None, random.random()) if pause_ms is None else pause_ms / 1000
            yield Pause(pause, Wait(failure, pause, attempt=attempt))
            attempt += 1

    def _event(self, heard: httpx2.ServerSentEvent) -> JobEvent:
        kind = EventType(heard.event)
        try:
            return JobEvent(heard.id, kind, DATA[kind].model_validate_json(heard.data, extra="ignore"))
        except ValueError:
            raise self.strange(f"its event {heard.event} carries something else") from None

    def jobs(self, filters: JobFilters, limit: int | None) -> Talk[None]:
        """Give each job that fits, newest first, up to ``limit``."""
        after: str | None = None
        left = limit
        while left is None or left > 0:
            page = yield from self.call(endpoints.list_jobs(filters, after, min(PAGE_JOBS, left or PAGE_JOBS)))
            for job in page.data:
                yield Give(job)
            left = None if left is None else left - len(page.data)
            if not page.has_more or page.next is None:
                return
            after = page.next

    def files(self) -> Talk[None]:
        """Give each file, newest first."""
        return self._each(lambda after: endpoints.list_files(after, PAGE_FILES))

    def batches(self) -> Talk[None]:
        """Give each batch, newest first."""
        return self._each(lambda after: endpoints.list_batches(after, PAGE_JOBS))

    def _each(self, page_after: Callable[[str | None], Call[Any]]) -> Talk[None]:
        """Give what stands in a list, page by page, by the last id of the page before."""
        after: str | None = None
        while True:
            page = yield from self.call(page_after(after))
            for each in page.data:
                yield Give(each)
            after = page.last_id
            if not page.has_more or after is None:
                return

    def batch(self, path: Path, completion_window: str, metadata: Mapping[str, str] | None, key: str) -> Talk[Batch]:
        """Upload a file, have its lines answered, and wait for the end."""
        file = yield from self.call(endpoints.upload_file(path))
        batch = yield from self.call(endpoints.create_batch(file.id, completion_window, metadata, key))
        pause = FIRST_PAUSE_S
        while batch.status not in FINAL:
            yield Pause(pause)
            pause = min(2 * pause, LOOK_AT_BATCH_S)
            batch = yield from self.call(endpoints.get_batch(batch.id))
        return batch

    def _poll(self, job_id: str, wait_s: float) -> Talk[Job]:
        """A look at a job, but never a busy loop when repeated, even if the service answers early."""
        started = time.monotonic()
        job = yield from self.call(endpoints.get_job(job_id, wait_s))
        if not job.status.is_final:
            yield Pause(max(0.0, min(wait_s, LEAST_POLL_S) - (time.monotonic() - started)))
        return job

    def _read(self, call: Call[Answer], body: bytes) -> Answer:
        try:
            return call.read(body)
        except (ValueError, KeyError, TypeError):
            raise self.strange(f"{call.method} {call.route} brought something else") from None

    def failure(self, call: Call[Any], instead: Reply | httpx2.HTTPError | None) -> CorelaneError:
        """The error for what came in place of a stream."""
        if isinstance(instead, Reply):
            return read_problem(instead.status, instead.content)
        return self.strange(call.route) if instead is None else self.unreachable(instead, True)

    def strange(self, what: str) -> ServiceError:
        """The error for an answer no Corelane would give."""
        detail = f"{self.base_url} does not answer as Corelane does: {what}"
        return ServiceError(detail, status=200, problem_code=FOREIGN)

    def unreachable(self, error: httpx2.HTTPError, repeatable: bool) -> ServiceUnreachable:
        """The error for no answer at all."""
        if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
            return ServiceUnreachable(f"no Corelane answers at {self.base_url}; start one with `corelane serve`")
        doubt = "" if repeatable else "; whether it took the job in is not known"
        if isinstance(error, httpx2.TimeoutException):
            return ServiceUnreachable(f"{self.base_url} was silent for {self.timeout_s:g} s{doubt}")
        return ServiceUnreachable(f"{self.base_url} broke off: {error or type(error).__name__}{doubt}")


def pause_s(attempt: int, retry_after: str | None, chance: float) -> float:
    """Seconds before the next attempt: what the service asked for, else doubling; spread by ``chance`` in [0, 1)."""
    if retry_after is not None and retry_after.isascii() and retry_after.isdigit():
        return min(float(retry_after) * (1 + chance / 4), LONGEST_PAUSE_S)
    return min(FIRST_PAUSE_S * 2.0 ** min(attempt, 16), LONGEST_PAUSE_S) * (1 + chance) / 2
