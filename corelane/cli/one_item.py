"""One item sent by a command, such as ``ask`` and ``run``: why it waits is shown, and Ctrl-C cancels it."""

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from rich.console import Console

from corelane.domain.jobs import Job, JobStatus, Result
from corelane.errors import CorelaneError, ServiceError, ServiceUnreachable

if TYPE_CHECKING:
    from corelane.client import Client, JobItem, JobParts

#: How long the first request waits for the result; later ones wait longer. In seconds.
FIRST_S, LATER_S = 2.0, 5.0

#: What an item and its result are called.
Words = tuple[str, str]
WORDS: Words = ("item", "result")


def result_for(client: "Client", item: "JobItem", parts: "JobParts", console: Console, words: Words = WORDS) -> Result:
    """Send one item and return its result; show on ``console`` why it waits."""
    from corelane.client.endpoints import new_key
    from corelane.client.protocol import AWAY

    key, items = new_key(), [item]
    job: Job | None = None
    try:
        with console.status("asking …") as status:
            job = client.submit(items, wait_s=FIRST_S, idempotency_key=key, **parts)
            job = follow(client, job, console, status.update)
            return result_of(client, job)
    except KeyboardInterrupt:
        with suppress(CorelaneError):
            # The service may have accepted the interrupted request: the same key brings back the same job.
            give_up(client, job or client.submit(items, idempotency_key=key, **parts), console)
        raise
    except (ServiceUnreachable, ServiceError) as error:
        if job is None or (isinstance(error, ServiceError) and error.status not in AWAY):
            raise
        called, its = words
        fetch = f"`corelane jobs results {job.id}` fetches its {its} once the service is back"
        raise ServiceUnreachable(f"{error.detail}; the {called} is {job.id}; {fetch}") from None


def follow(client: "Client", job: Job, console: Console, show: Callable[[str], None]) -> Job:
    """Return the job once it is final."""
    reason = ""
    while not job.status.is_final:
        if job.waiting_for and job.waiting_for != reason:
            reason = job.waiting_for
            console.print(f"{reason}; {job.id} waits, `corelane cores` shows the cores' states", style="yellow")
        show(f"{job.id} is {job.status} …")
        job = client.get(job.id, LATER_S)
    return job


def result_of(client: "Client", job: Job) -> Result:
    """Return the one result of a final job; raise ServiceError if it has none."""
    result = next(iter(job.results or client.iter_results(job.id)), None)
    if result is None:
        raise ServiceError(f"{job.id} is {job.status} and has no result", status=200, problem_code="not_found")
    return result


def check(result: Result, words: Words = WORDS) -> None:
    """Raise ServiceError if the item has no output: it failed, or its job was canceled or expired."""
    if result.error is not None:
        raise ServiceError(result.error.detail, status=200, problem_code=result.error.code)
    if result.status is not JobStatus.SUCCEEDED:
        raise ServiceError(
            f"the {words[0]} was {result.status} before it was answered", status=200, problem_code="gone"
        )


def give_up(client: "Client", job: Job, console: Console) -> None:
    """Cancel a job whose caller interrupted the command, or say how to cancel it."""
    try:
        client.cancel(job.id)
    except CorelaneError:
        console.print(f"{job.id} is still open; `corelane jobs cancel {job.id}` cancels it")
        return
    console.print(f"{job.id} is canceled")
