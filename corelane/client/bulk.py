"""Any number of items through the client: cut into jobs of bounded size, a few in flight at a time, results in order.

Memory stays flat: only the jobs in flight are held. Nothing is kept between runs. A run with a name can be resumed
after an interruption: the same items, cut at the same places, are the same jobs to the service, which has their results
or still works on them, and answers none of them twice. Only a job that was canceled meanwhile is asked again.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Unpack

from corelane.client import OVERLOADED, Client, JobItem, JobParts, dump_body
from corelane.client.protocol import TOO_LARGE
from corelane.domain.jobs import Item, Job, JobStatus, ModelResult
from corelane.domain.unanswered import failed_result
from corelane.domain.usage import Usage
from corelane.errors import CorelaneError, ServiceError, UnknownContext

#: Most items and bytes in a job: a tenth and a half of the service's default limits.
JOB_ITEMS, JOB_BYTES = 1000, 4 * 1024 * 1024


def cut_jobs(
    items: Iterable[JobItem], max_items: int = JOB_ITEMS, max_bytes: int = JOB_BYTES
) -> Iterator[list[JobItem]]:
    """Yield items in order, cut into jobs within both limits; an item over ``max_bytes`` goes alone."""
    job: list[JobItem] = []
    job_bytes = 0
    for item in items:
        item_bytes = len(dump_body(item)) + 1
        if job and (len(job) == max_items or job_bytes + item_bytes > max_bytes):
            yield job
            job, job_bytes = [], 0
        job.append(item)
        job_bytes += item_bytes
    if job:
        yield job


@dataclass(frozen=True, slots=True)
class NamedRun:
    """A run that can be resumed: its name, and the position of its first item in the whole.

    ``reached(n)`` is called once the results of all items before the n-th have been read: it could resume there.
    """

    name: str
    first: int
    reached: Callable[[int], None]


@dataclass(slots=True)
class BulkState:
    """The jobs in flight, for a progress bar in another thread, and for a message after an interruption.

    It is behind by a moment at most, and never ahead.
    """

    #: The jobs in flight, oldest first, as they were submitted, or the result of an item that was refused.
    in_flight: deque[Job | ModelResult] = field(default_factory=deque)
    #: Some of them as they were last seen.
    seen: dict[str, Job] = field(default_factory=dict)
    #: Results that were read of the oldest job.
    read: int = 0
    #: Items that were done already when their job was submitted: an earlier run had asked them.
    found: int = 0
    #: Called, if given, with the usage of each job whose results have all been read; None if it is not known.
    spend: Callable[[Usage | None], None] | None = None

    @property
    def jobs(self) -> list[Job]:
        """The jobs in flight as they were last seen."""
        return [self.seen.get(each.id, each) for each in list(self.in_flight) if isinstance(each, Job)]

    @property
    def ahead(self) -> int:
        """Items that the service has finished, and whose results have not been read."""
        done = [job.counts.done for job in self.jobs]
        return max(0, done[0] - self.read) + sum(done[1:]) if done else 0

    @property
    def open(self) -> int:
        """Items in flight that the service has not finished, by its last reports."""
        return sum(job.counts.total - job.counts.done for job in self.jobs)

    def look(self, client: Client, label: str) -> None:
        """Update the progress of the jobs in flight, by their label; does nothing if the service is unreachable."""
        # RuntimeError: the client was closed meanwhile, as its command has ended.
        with suppress(CorelaneError, RuntimeError):
            for job in client.iter_jobs(label=label, limit=max(1, len(self.jobs))):
                self.seen[job.id] = job


def answer_all(
    client: Client,
    items: Iterable[JobItem],
    *,
    jobs_in_flight: int = 4,
    run: NamedRun | None = None,
    state: BulkState | None = None,
    **parts: Unpack[JobParts],
) -> Generator[ModelResult, None, None]:
    """Yield the results of any number of items in order, ``index`` counting them all; memory stays flat.

    Jobs that the service refuses for their size, or for a stored context that it does not have, are halved; an item too
    large alone is sent as lines, and one that is refused alone gets a failed result. Closed or interrupted, it cancels
    the jobs in flight, unless it is a ``run`` that can be resumed.
    """

    def submit(first: int, job: list[JobItem]) -> Job:
        # A job that is too large is halved rather than sent as lines: both halves can be in flight.
        if run is None:
            return client.submit(job, or_lines=len(job) == 1, **parts)
        key = f"{run.name}.{run.first + first}.{len(job)}"
        while True:
            found = client.submit(job, idempotency_key=key, or_lines=len(job) == 1, **parts)
            if found.status is not JobStatus.CANCELED:
                return found
            key += ".again"

    state = BulkState() if state is None else state
    submitter = _Submitter(cut_jobs(items), submit, state)
    index = 0
    try:
        while submitter.fill(jobs_in_flight):
            for result in _results(client, state):
                yield result.model_copy(update={"index": index})
                index += 1
            done = state.in_flight[0]
            if isinstance(done, Job):
                if state.spend is not None:
                    state.spend(client.get(done.id).usage)
                state.seen.pop(done.id, None)
            state.in_flight.popleft()
            state.read = 0
            if run is not None:
                run.reached(run.first + index)
    finally:
        if run is None:
            with suppress(CorelaneError):
                for job in state.jobs:
                    client.cancel(job.id)


def _results(client: Client, state: BulkState) -> Iterator[ModelResult]:
    """Yield the results of the oldest job in flight, to its end."""
    oldest = state.in_flight[0]
    if isinstance(oldest, ModelResult):
        yield oldest
        return
    for result in client.iter_results(oldest.id):
        state.read += 1
        yield ModelResult(**dict(result), model=oldest.model)


class _Submitter:
    """Submits jobs one after the other, in halves where the service refuses them whole."""

    def __init__(
        self, jobs: Iterator[list[JobItem]], submit: Callable[[int, list[JobItem]], Job], state: BulkState
    ) -> None:
        self._jobs, self._submit, self._state = jobs, submit, state
        self._next = 0
        self._held: deque[list[JobItem]] = deque()

    def fill(self, most: int) -> bool:
        """Submit until ``most`` are in flight; return whether any is."""
        in_flight = self._state.in_flight
        while len(in_flight) < most and (job := self._held.popleft() if self._held else next(self._jobs, None)):
            try:
                submitted = self._submit(self._next, job)
            except ServiceError as error:
                if error.status in OVERLOADED and in_flight:
                    self._held.appendleft(job)
                    break
                if error.status != TOO_LARGE and error.problem_code != UnknownContext.code:
                    raise
                if len(job) > 1:
                    middle = len(job) // 2
                    self._held.extendleft([job[middle:], job[:middle]])
                    continue
                item_id = job[0].id if isinstance(job[0], Item) else job[0].get("id")
                result = failed_result(0, item_id, error.problem_code, error.detail)
                in_flight.append(ModelResult.model_validate(result))
            else:
                self._state.found += submitted.counts.done
                in_flight.append(submitted)
            self._next += len(job)
        return bool(in_flight)
