"""One question from the command line to its answer: shows why it waits, and Ctrl-C cancels it.

A question that is answered at once takes one request. While it waits for a version that no core holds, the reason is
shown; while a long passage is read, the progress.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from rich.console import Console

from corelane.domain.events import Partial
from corelane.domain.jobs import Job, JobStatus, Result
from corelane.errors import CorelaneError, ServiceError, ServiceUnreachable

if TYPE_CHECKING:
    from corelane.client import Client, JobParts

#: The first request waits this long for the answer; later ones, while the question is queued, longer. In seconds.
FIRST_S, LATER_S = 2.0, 5.0


def answer(client: "Client", question: str, passage: str, parts: "JobParts", console: Console) -> Result:
    """Ask one question and return its result; show on ``console`` what it waits for."""
    from corelane.client import AWAY
    from corelane.client.endpoints import new_key

    key, items = new_key(), [{"question": question, "context": passage}]
    job: Job | None = None
    try:
        with console.status("asking …") as status:
            job = client.submit(items, wait_s=FIRST_S, idempotency_key=key, **parts)
            job = follow(client, job, console, status.update)
            return result_of(client, job)
    except KeyboardInterrupt:
        with suppress(CorelaneError):
            # The service may have accepted the interrupted request: its key brings the same job back.
            give_up(client, job or client.submit(items, idempotency_key=key, **parts), console)
        raise
    except (ServiceUnreachable, ServiceError) as error:
        if job is None or (isinstance(error, ServiceError) and error.status not in AWAY):
            raise
        where = (
            f"the question is {job.id}; `corelane jobs results {job.id}` fetches its answer once the service is back"
        )
        raise ServiceUnreachable(f"{error.detail}; {where}") from None


def follow(client: "Client", job: Job, console: Console, show: Callable[[str], None]) -> Job:
    """Return the job once it is final."""
    reason = ""
    while job.status is JobStatus.QUEUED:
        if job.waiting_for and job.waiting_for != reason:
            reason = job.waiting_for
            console.print(f"{reason}; {job.id} waits, `corelane cores` shows the cores' states", style="yellow")
        show(f"{job.id} is queued …")
        job = client.get(job.id, LATER_S)
    if job.status.is_final:
        return job
    for event in client.iter_events(job.id):
        if isinstance(event.data, Partial):
            show(f"read {event.data.windows_done:,} of {event.data.windows_total:,} windows …")
    return client.get(job.id)


def result_of(client: "Client", job: Job) -> Result:
    """Return the one result of a final job; raise ServiceError if it has none."""
    result = next(iter(job.results or client.iter_results(job.id)), None)
    if result is None:
        raise ServiceError(f"{job.id} is {job.status} and has no result", status=200, problem_code="not_found")
    return result


def check(result: Result) -> None:
    """Raise ServiceError if the question was not answered: it failed, or its job was canceled or expired."""
    if result.error is not None:
        raise ServiceError(result.error.detail, status=200, problem_code=result.error.code)
    if result.status is not JobStatus.SUCCEEDED:
        raise ServiceError(f"the question was {result.status} before it was answered", status=200, problem_code="gone")


def give_up(client: "Client", job: Job, console: Console) -> None:
    """Cancel a job that nobody waits for any more, or say how to."""
    try:
        client.cancel(job.id)
    except CorelaneError:
        console.print(f"{job.id} is still open; `corelane jobs cancel {job.id}` cancels it")
        return
    console.print(f"{job.id} is canceled")
