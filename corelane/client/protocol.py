"""The client's dialogues with a service, as steps that a driver performs; no input or output here.

``Client`` performs them with blocking calls, ``AsyncClient`` with asyncio: every retry, wait and page is written once.

An exchange is a generator of steps; the driver sends the outcome of each step back into it. A call is repeated with
back-off while the service cannot be reached or is overloaded, if it changes nothing or its key makes that safe.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, Unpack

import httpx2

from corelane.client import endpoints
from corelane.client.endpoints import (
    LONGEST_POLL_S,
    PAGE_ITEMS,
    Call,
    JobFilters,
    JobParts,
    job_body,
    job_head,
    new_key,
)
from corelane.client.patience import FIRST_PAUSE_S, Patience, Wait
from corelane.client.steps import Exchange, HttpReply, Iteration, OpenStream, ReadStream, Return, Send, Sleep, all_of
from corelane.client.wire import FOREIGN, JobItem, read_problem, whole_file
from corelane.domain.batches import FINAL, Batch, BatchList, FileList, FileObject
from corelane.domain.events import DATA, EventType, Progress
from corelane.domain.jobs import Item, Job, Result
from corelane.errors import CorelaneError, ServiceError, ServiceUnreachable

#: Time between two requests for the results of a running job, in seconds. The job's end is noticed at once.
FOLLOW_S = 2.0

#: Least time between two polls of a job if the service does not honour `wait`, in seconds.
LEAST_POLL_S = 0.2

#: Longest time between two polls of a batch, in seconds.
POLL_BATCH_S = 5.0

#: Entries of a list requested in one page; and for lists of many small entries, such as files.
PAGE_ENTRIES, LARGE_PAGE_ENTRIES = 100, 1000

#: Temporary refusals: the service kept nothing, and a later try may succeed.
OVERLOADED = frozenset({429, 503})

#: Statuses by which a proxy reports that it cannot reach the service: worth another try if repeating is safe.
AWAY = OVERLOADED | {502, 504}

#: The status of a job that may fit if it is sent as lines; and codes that say that another body was sent earlier.
TOO_LARGE, OTHER_BODY = 413, ("idempotency_key_reused", "name_taken")

#: The reply to a reader who has seen a job's last event: there is no more to read.
NOTHING_MORE = 204

Reply = TypeVar("Reply")


@dataclass(frozen=True, slots=True)
class JobEvent:
    """One event of a job: its id, from which a stream can be resumed; its type; and the data for that type."""

    id: str
    type: EventType
    data: Progress | Job


@dataclass(frozen=True, slots=True)
class ServiceProtocol:
    """The exchanges with one service, and how long they are repeated."""

    base_url: str
    timeout_s: float
    patience_s: float

    def call(self, call: Call[Reply]) -> Exchange[Reply]:
        """Make one call. Repeat it if that is safe and may help."""
        patience = Patience(0 if call.tried_once else self.patience_s)
        while True:
            reply: HttpReply | httpx2.HTTPError = yield Send(call)
            retry_after = None
            if isinstance(reply, HttpReply):
                if 200 <= reply.status < 300:
                    return self._read(call, reply.content)
                failure: CorelaneError = read_problem(reply.status, reply.content)
                may_help = reply.status in (AWAY if call.repeatable else OVERLOADED)
                retry_after = reply.headers.get("Retry-After")
            else:
                failure = self._unreachable(reply, call.repeatable)
                may_help = call.repeatable or isinstance(reply, httpx2.ConnectError | httpx2.ConnectTimeout)
            if not may_help:
                raise failure
            yield _pause(patience.wait(failure, retry_after))

    def submit(
        self,
        items: Iterable[JobItem] = (),
        *,
        wait_s: float = 0.0,
        idempotency_key: str | None = None,
        name: str | None = None,
        or_lines: bool = True,
        **parts: Unpack[JobParts],
    ) -> Exchange[Job]:
        """Submit a job. Once this returns, the service has stored it; it is final if it ended within ``wait_s``.

        The request is repeated while the service cannot be reached. The idempotency key, a new one if none is given,
        makes sure that the job is accepted only once. A ``name`` of your own also finds the job, and makes submitting
        it again harmless for as long as the job is kept. A job that is too large for one request is
        sent as lines instead, unless ``or_lines`` is false. ``input_url`` names the place of the items instead of
        sending them.
        """
        given = list(items)
        body = job_body(given, parts)
        if name is not None:
            call = endpoints.put_job(name, body, wait_s)
        else:
            call = endpoints.submit(body, idempotency_key or new_key(), wait_s)
        if not or_lines:
            return (yield from self.call(call))
        try:
            return (yield from self.call(call))
        except ServiceError as refusal:
            # If the key or name belongs to another body, that may be the lines that were sent at an earlier try.
            if refusal.status != TOO_LARGE and refusal.problem_code not in OTHER_BODY:
                raise
            refused = refusal
        try:
            job = yield from self.call(endpoints.same_as_lines(call, given, job_head(parts)))
        except ServiceError:
            raise refused from None
        if call.wait_s >= 1 and not job.status.is_final:
            job = yield from self.call(endpoints.get_job(job.id, call.wait_s))
        return job

    def results_of(self, items: Sequence[JobItem], **parts: Unpack[JobParts]) -> Exchange[list[Result]]:
        """Submit a job, wait for it without limit, and return its results in the order of its items."""
        if not items:
            return []
        job = yield from self.submit(items, wait_s=LONGEST_POLL_S, **parts)
        if not job.status.is_final:
            job = yield from self.wait(job.id)
        found = job.results or (yield from all_of(self.results(job.id)))
        if len(found) != len(items):
            raise self.not_corelane(f"{job.id} has {len(items):,} items but {len(found):,} results")
        return found

    def predict(
        self, model: str, items: JobItem | Sequence[JobItem], *, options: Mapping[str, Any] | None = None
    ) -> Exchange[Any]:
        """Send a model of any task one item, and return its result; or send several, and return a list.

        Waits without limit. The ``output`` of a result is what the model's handler returned.
        """
        if isinstance(items, Item | Mapping):
            return (yield from self.results_of([items], model=model, options=options))[0]
        return (yield from self.results_of(list(items), model=model, options=options))

    def wait(self, job_id: str, timeout_s: float | None = None) -> Exchange[Job]:
        """Return a job once it is final, or as it is after ``timeout_s``; its status tells which."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left = LONGEST_POLL_S if deadline is None else max(0.0, deadline - time.monotonic())
            job = yield from self._poll(job_id, left)
            if job.status.is_final or (deadline is not None and time.monotonic() >= deadline):
                return job

    def results(self, job_id: str, *, after: int | None = None, drop: bool = False) -> Iteration[Result]:
        """Iterate over results in item order, from the first that was not dropped; follow a running job to its end.

        Each result comes once, even if connections break. A caller that is interrupted resumes ``after`` the index of
        its last result.

        With ``drop`` the service deletes each page of results once the caller asks for the next page. So a caller that
        stores each result before it asks for the next loses none, whenever it stops. Next time it reads the page where
        it stopped again, and perhaps a few results before that. A job with a ``results_window`` can be read to its end
        only with ``drop``.
        """
        cursor = None if after is None else str(after + 1)
        is_final = False
        while True:
            page = yield from self.call(endpoints.results(job_id, cursor))
            for result in page.data:
                yield Return(result)
            if drop and page.data:
                yield from self.call(endpoints.drop_results(job_id, page.data[-1].index + 1))
            if not page.has_more or page.next is None:
                return
            cursor = page.next
            if is_final and not page.data:
                raise self.not_corelane(f"{job_id} is final but its results end at item {cursor}")
            if len(page.data) < PAGE_ITEMS:
                is_final = (yield from self._poll(job_id, FOLLOW_S)).status.is_final

    def events(self, job_id: str, *, after: str | None = None) -> Iteration[JobEvent]:
        """Iterate over a job's events, from the first, or from the one after the id ``after``, to `job.completed`.

        Each event comes once and in order: a stream that breaks is resumed after the last event that was read.
        """
        patience = Patience(self.patience_s)
        while True:
            opened: HttpReply | httpx2.HTTPError | None = yield OpenStream(endpoints.events(job_id, after))
            if isinstance(opened, HttpReply) and opened.status == NOTHING_MORE:
                return
            if opened is not None:
                yield self._pause_after(opened, patience)
                continue
            patience.rests()
            asked_s = None
            while isinstance(heard := (yield ReadStream()), httpx2.ServerSentEvent):
                asked_s = heard.retry / 1000 if heard.retry is not None else asked_s
                after = heard.id or after
                if heard.event in DATA:
                    patience = Patience(self.patience_s)
                    event = self._event(heard)
                    yield Return(event)
                    if event.type is EventType.COMPLETED:
                        return
            broke = ServiceUnreachable(f"{self.base_url} broke off its events")
            yield _pause(patience.wait(broke if heard is None else self._unreachable(heard, True), asked_s=asked_s))

    def _event(self, heard: httpx2.ServerSentEvent) -> JobEvent:
        kind = EventType(heard.event)
        try:
            return JobEvent(heard.id, kind, DATA[kind].model_validate_json(heard.data, extra="ignore"))
        except ValueError:
            raise self.not_corelane(f"its event {heard.event} carries something else") from None

    def jobs(self, *, limit: int | None = None, **filters: Unpack[JobFilters]) -> Iteration[Job]:
        """Iterate over your own jobs that match all filters, newest first, ``limit`` at most, read page by page."""
        return self.pages(partial(endpoints.list_jobs, filters), limit)

    def files(self) -> Iteration[FileObject]:
        """Iterate over your own files, newest first."""
        return self.pages(endpoints.list_files, page_entries=LARGE_PAGE_ENTRIES)

    def batches(self) -> Iteration[Batch]:
        """Iterate over your own batches, newest first."""
        return self.pages(endpoints.list_batches)

    def pages(
        self,
        page: Callable[[str | None, int], Call[Any]],
        limit: int | None = None,
        page_entries: int = PAGE_ENTRIES,
    ) -> Iteration[Any]:
        """Iterate over the entries of a list, ``limit`` at most; ``page`` makes the call for a page after a cursor."""
        after, left = None, limit
        while left is None or left > 0:
            found = yield from self.call(page(after, min(page_entries, left or page_entries)))
            for each in found.data:
                yield Return(each)
            left = None if left is None else left - len(found.data)
            after = found.last_id if isinstance(found, FileList | BatchList) else found.next
            if not found.has_more or after is None:
                return

    def batch(
        self,
        path: str | Path,
        *,
        completion_window: str = "24h",
        metadata: Mapping[str, str] | None = None,
        idempotency_key: str | None = None,
    ) -> Exchange[Batch]:
        """Upload a file (a line: `custom_id`, `method`, `url`, `body`), and wait until every line is answered.

        ``download_file`` fetches its ``output_file_id`` and ``error_file_id``. Memory use is constant on both sides.
        """
        file = yield from self.call(endpoints.upload_file(path))
        create = endpoints.create_batch(
            file.id, completion_window=completion_window, metadata=metadata, idempotency_key=idempotency_key
        )
        batch = yield from self.call(create)
        pause = FIRST_PAUSE_S
        while batch.status not in FINAL:
            yield Sleep(pause)
            pause = min(2 * pause, POLL_BATCH_S)
            batch = yield from self.call(endpoints.get_batch(batch.id))
        return batch

    def download(self, file_id: str, path: str | Path) -> Exchange[None]:
        """Write a file's content to ``path``. The file appears once it is complete."""
        patience = Patience(self.patience_s)
        with whole_file(Path(path)) as file:
            while True:
                failed: HttpReply | httpx2.HTTPError | None = yield OpenStream(endpoints.read_file(file_id), False)
                if failed is None:
                    patience.rests()
                    while isinstance(piece := (yield ReadStream()), bytes):
                        file.write(piece)
                    if piece is None:
                        return
                    failed = piece
                yield self._pause_after(failed, patience)
                file.seek(0)
                file.truncate()

    def _pause_after(self, failed: HttpReply | httpx2.HTTPError, patience: Patience) -> Sleep:
        """Return the pause before a stream is opened again; raise its failure if another try cannot help."""
        if not isinstance(failed, HttpReply):
            return _pause(patience.wait(self._unreachable(failed, True)))
        failure = read_problem(failed.status, failed.content)
        if failed.status not in AWAY:
            raise failure
        return _pause(patience.wait(failure, failed.headers.get("Retry-After")))

    def ready(self) -> Exchange[bool]:
        """Return whether an item sent now would be answered; tries once and never raises."""
        try:
            yield from self.call(endpoints.ready())
        except CorelaneError:
            return False
        return True

    def _poll(self, job_id: str, wait_s: float) -> Exchange[Job]:
        """Return a job. If the service replies too early, pause, so that repeated polls are not a busy loop."""
        started = time.monotonic()
        job = yield from self.call(endpoints.get_job(job_id, wait_s))
        if not job.status.is_final:
            yield Sleep(max(0.0, min(wait_s, LEAST_POLL_S) - (time.monotonic() - started)))
        return job

    def _read(self, call: Call[Reply], body: bytes) -> Reply:
        try:
            return call.read(body)
        except (ValueError, KeyError, TypeError):
            raise self.not_corelane(f"{call.method} {call.route} brought something else") from None

    def not_corelane(self, what: str) -> ServiceError:
        """Return the error for a reply that cannot be Corelane's."""
        detail = f"{self.base_url} does not reply as Corelane does: {what}"
        return ServiceError(detail, status=200, problem_code=FOREIGN)

    def _unreachable(self, error: httpx2.HTTPError, repeatable: bool) -> ServiceUnreachable:
        """Return the error for a missing reply."""
        if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout):
            return ServiceUnreachable(f"no Corelane replies at {self.base_url}; start one with `corelane serve`")
        doubt = "" if repeatable else "; whether it accepted the job is not known"
        if isinstance(error, httpx2.TimeoutException):
            return ServiceUnreachable(f"{self.base_url} was silent for {self.timeout_s:g} s{doubt}")
        return ServiceUnreachable(f"{self.base_url} broke off: {error or type(error).__name__}{doubt}")


def _pause(wait: Wait) -> Sleep:
    return Sleep(wait.seconds, wait)
