"""Send any number of items: they are cut into jobs of bounded size, a few in flight at a time, with results in order.

Memory use is constant: only the jobs in flight are held. Nothing is kept between runs. A run with a name can be resumed
after an interruption. The service recognises the same items, cut at the same places, as the same jobs. It has their
results or still works on them, and runs none of them twice. Only a job that was canceled in the meantime is asked
again.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Unpack

from corelane.client import Client, JobItem, JobParts
from corelane.client.protocol import OVERLOADED, TOO_LARGE
from corelane.client.wire import cut_jobs
from corelane.domain.jobs import DEFAULT_TASK, Item, Job, JobStatus, Result
from corelane.errors import CorelaneError, ServiceError, ServiceUnreachable
from corelane.tasks.results import failed_result, model_result


@dataclass(frozen=True, slots=True)
class NamedRun:
    """A run that can be resumed: its name, and the position of its first item in the whole input.

    ``reached(n)`` is called once the results of all items before the n-th have been read: the run could resume there.
    """

    name: str
    first: int
    reached: Callable[[int], None]


#: Most jobs in flight whose progress is followed: as many as one request may name.
MOST_SEEN = 100


@dataclass(slots=True)
class BulkState:
    """The jobs in flight, for a progress bar in another thread, and for a message after an interruption.

    It may be slightly behind, and is never ahead.
    """

    #: The jobs in flight, oldest first, as they were submitted, or the result of an item that was refused.
    in_flight: deque[Job | Result] = field(default_factory=deque)
    #: The last seen state of some jobs in flight, by id.
    seen: dict[str, Job] = field(default_factory=dict)
    #: Number of results of the oldest job that have been read.
    read: int = 0
    #: Items that were done already when their job was submitted, because an earlier run had submitted it.
    found: int = 0

    @property
    def jobs(self) -> list[Job]:
        """The jobs in flight, in their last seen state."""
        return [self.seen.get(each.id, each) for each in list(self.in_flight) if isinstance(each, Job)]

    @property
    def ahead(self) -> int:
        """Number of items that the service has finished and whose results have not been read."""
        done = [job.counts.done for job in self.jobs]
        return max(0, done[0] - self.read) + sum(done[1:]) if done else 0

    @property
    def open(self) -> int:
        """Number of items in flight that the service has not finished, by its last reports."""
        return sum(job.counts.total - job.counts.done for job in self.jobs)

    def look(self, client: Client) -> None:
        """Update the progress of the jobs in flight; does nothing if the service is unreachable."""
        ids = [job.id for job in self.jobs[:MOST_SEEN]]
        # RuntimeError: the client was closed in the meantime, because its command has ended.
        with suppress(CorelaneError, RuntimeError):
            for job in client.iter_jobs(id=ids) if ids else ():
                self.seen[job.id] = job


def run_all(
    client: Client,
    items: Iterable[JobItem],
    *,
    jobs_in_flight: int = 4,
    run: NamedRun | None = None,
    state: BulkState | None = None,
    **parts: Unpack[JobParts],
) -> Generator[Result, None, None]:
    """Yield the results of any number of items in order, with ``index`` over all items; memory use is constant.

    Jobs that the service refuses for their size are halved. A single item that is too
    large is sent as lines. A single item that is refused gets a failed result. If closed or interrupted, the jobs in
    flight are canceled, unless a ``run`` is given, which can be resumed.
    """

    def submit(first: int, job: list[JobItem]) -> Job:
        # A job that is too large is halved rather than sent as lines, so that both halves can be in flight.
        if run is None:
            return client.submit(job, or_lines=len(job) == 1, **parts)
        key = f"{run.name}.{run.first + first}.{len(job)}"
        while True:
            found = client.submit(job, idempotency_key=key, or_lines=len(job) == 1, **parts)
            if found.status is not JobStatus.CANCELED:
                return found
            key += ".again"

    state = BulkState() if state is None else state
    submitter = _Submitter(cut_jobs(items), submit, state, lambda: client.get_model(parts.get("model", "default")))
    index = 0
    try:
        while submitter.fill(jobs_in_flight):
            for result in _results(client, state):
                yield result.model_copy(update={"index": index})
                index += 1
            done = state.in_flight[0]
            if isinstance(done, Job):
                state.seen.pop(done.id, None)
            state.in_flight.popleft()
            state.read = 0
            if run is not None:
                run.reached(run.first + index)
    finally:
        if run is None:
            with suppress(ServiceUnreachable):
                for job in state.jobs:
                    with suppress(ServiceError):
                        client.cancel(job.id)


def _results(client: Client, state: BulkState) -> Iterator[Result]:
    """Yield all results of the oldest job in flight."""
    oldest = state.in_flight[0]
    if isinstance(oldest, Result):
        yield oldest
        return
    for result in client.iter_results(oldest.id):
        state.read += 1
        yield model_result(result, oldest.model)


class _Submitter:
    """Submits jobs one after the other; halves those that the service refuses."""

    def __init__(
        self,
        jobs: Iterator[list[JobItem]],
        submit: Callable[[int, list[JobItem]], Job],
        state: BulkState,
        read_model: Callable[[], Mapping[str, Any]],
    ) -> None:
        self._jobs, self._submit, self._state, self._read_model = jobs, submit, state, read_model
        self._task = ""
        self._next = 0
        self._held: deque[list[JobItem]] = deque()

    def fill(self, most: int) -> bool:
        """Submit until ``most`` jobs are in flight; return whether any job is."""
        in_flight = self._state.in_flight
        while len(in_flight) < most and (job := self._held.popleft() if self._held else next(self._jobs, None)):
            try:
                submitted = self._submit(self._next, job)
            except ServiceError as error:
                if error.status in OVERLOADED and in_flight:
                    self._held.appendleft(job)
                    break
                if error.status != TOO_LARGE:
                    raise
                if len(job) > 1:
                    middle = len(job) // 2
                    self._held.extendleft([job[middle:], job[:middle]])
                    continue
                item_id = job[0].id if isinstance(job[0], Item) else job[0].get("id")
                self._task = self._task or self._read_model().get("task", DEFAULT_TASK)
                result = failed_result(self._task, 0, item_id, error.problem_code, error.detail)
                in_flight.append(model_result(result, None))
            else:
                self._task = submitted.task
                self._state.found += submitted.counts.done
                in_flight.append(submitted)
            self._next += len(job)
        return bool(in_flight)
