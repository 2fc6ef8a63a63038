"""Any number of items through the client: cut into jobs of bounded size, a few in flight at a time, results in order.

Memory stays flat: only the jobs in flight are held. Nothing is kept between runs. A run with a name can be resumed
after an interruption: the same items, cut at the same places, are the same jobs to the service, which has their results
or still works on them, and answers none of them twice.
"""

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from corelane.client import OVERLOADED, Client, JobItem, JobParts, dump_body
from corelane.domain.jobs import Item, Job, Options, Priority, Result
from corelane.domain.unanswered import failed_result
from corelane.errors import CorelaneError, ServiceError

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


def answer_all(
    client: Client,
    items: Iterable[JobItem],
    *,
    model: str = "default",
    options: Options | Mapping[str, Any] | None = None,
    priority: Priority | str | None = None,
    jobs_in_flight: int = 4,
    run: NamedRun | None = None,
) -> Generator[Result, None, None]:
    """Yield the results of any number of items in order, ``index`` counting them all; memory stays flat.

    Jobs too large for the service are halved; an item too large alone is sent as lines, or gets a failed result. Closed
    or interrupted, it cancels the jobs in flight, unless it is a ``run`` that can be resumed.
    """

    def submit(first: int, job: list[JobItem]) -> Job:
        key = None if run is None else f"{run.name}.{run.first + first}.{len(job)}"
        # A job that is too large is halved rather than sent as lines: both halves can be in flight.
        given: JobParts = {"model": model, "options": options, "priority": priority}
        return client.submit(job, idempotency_key=key, or_lines=len(job) == 1, **given)

    in_flight = _JobsInFlight(client, cut_jobs(items), submit)
    index = 0
    try:
        while in_flight.fill(jobs_in_flight):
            for result in in_flight.oldest():
                yield result.model_copy(update={"index": index})
                index += 1
            if run is not None:
                run.reached(run.first + index)
    finally:
        if run is None:
            in_flight.cancel()


class _JobsInFlight:
    """The jobs in flight, oldest first: ids, or the result of an item that was refused."""

    def __init__(
        self, client: Client, jobs: Iterator[list[JobItem]], submit: Callable[[int, list[JobItem]], Job]
    ) -> None:
        self._client = client
        self._jobs = jobs
        self._submit = submit
        self._next = 0
        self._held: deque[list[JobItem]] = deque()
        self._in_flight: deque[str | Result] = deque()

    def fill(self, most: int) -> bool:
        """Submit until ``most`` are in flight; return whether any is."""
        while len(self._in_flight) < most and (job := self._held.popleft() if self._held else next(self._jobs, None)):
            try:
                self._in_flight.append(self._submit(self._next, job).id)
                self._next += len(job)
            except ServiceError as error:
                if error.status in OVERLOADED and self._in_flight:
                    self._held.appendleft(job)
                    break
                if error.status != 413:
                    raise
                self._divide(job, error)
        return bool(self._in_flight)

    def oldest(self) -> Iterator[Result]:
        """Yield the oldest job's results, to its end."""
        first = self._in_flight[0]
        yield from [first] if isinstance(first, Result) else self._client.iter_results(first)
        self._in_flight.popleft()

    def cancel(self) -> None:
        """Cancel all jobs in flight, as long as the service can be reached."""
        with suppress(CorelaneError):
            for job in self._in_flight:
                if isinstance(job, str):
                    self._client.cancel(job)

    def _divide(self, job: list[JobItem], error: ServiceError) -> None:
        if len(job) > 1:
            middle = len(job) // 2
            self._held.extendleft([job[middle:], job[:middle]])
            return
        item_id = job[0].id if isinstance(job[0], Item) else job[0].get("id")
        self._next += 1
        result = failed_result(0, item_id, error.problem_code, error.detail)
        self._in_flight.append(Result.model_validate(result))
