"""One question from the command line to its answer: what it waits for is told, and Ctrl-C cancels it.

A question that is answered at once takes one request. One that waits for a version that no core holds says so; one
whose long passage is being read says how far that is.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rich.console import Console

from corelane.errors import CorelaneError, ServiceError, ServiceUnreachable
from corelane.events import Partial
from corelane.jobs import Job, JobStatus, Result

if TYPE_CHECKING:
    from corelane.client import Client, JobParts

#: The first request waits this long for the answer; later ones, while the question is queued, longer. In seconds.
FIRST_S, LATER_S = 2.0, 5.0

#: States of a version on a core that will hold it soon.
COMING = ("waiting", "loading", "loaded", "lazy")


def answer(client: "Client", question: str, passage: str, parts: "JobParts", console: Console) -> Result:
    """Ask one question and return its result, telling on ``console`` what it waits for."""
    from corelane.client import AWAY
    from corelane.client.transport import new_key

    key, items = new_key(), [{"question": question, "context": passage}]
    job: Job | None = None
    try:
        with console.status("asking …") as status:
            job = client.submit(items, wait_s=FIRST_S, idempotency_key=key, **parts)
            job = follow(client, job, console, status.update)
            return result_of(client, job)
    except KeyboardInterrupt:
        with suppress(CorelaneError):
            # The request that was interrupted may have been taken in: its key brings the same job back.
            give_up(client, job or client.submit(items, idempotency_key=key, **parts), console)
        raise
    except (ServiceUnreachable, ServiceError) as error:
        if job is None or (isinstance(error, ServiceError) and error.status not in AWAY):
            raise
        where = f"the question is {job.id}; `corelane jobs results {job.id}` brings its answer once the service is back"
        raise ServiceUnreachable(f"{error.detail}; {where}") from None


def follow(client: "Client", job: Job, console: Console, show: Callable[[str], None]) -> Job:
    """Return the job once it is final."""
    told = ""
    while job.status is JobStatus.QUEUED:
        why = what_is_missing(client, job)
        if why and why != told:
            console.print(why, style="yellow")
        told = why or told
        show(f"{job.id} is queued …")
        job = client.get(job.id, LATER_S)
    if job.status.is_final:
        return job
    for event in client.iter_events(job.id):
        if isinstance(event.data, Partial):
            show(f"read {event.data.windows_done:,} of {event.data.windows_total:,} windows …")
    return client.get(job.id)


def what_is_missing(client: "Client", job: Job) -> str:
    """Say why a queued job may wait for long: no core holds its version. Empty if one does, or nobody may look."""
    try:
        model = next((each for each in client.models() if each["id"] == job.model), None)
        if model is None or model["cores"]:
            return ""
        coming = [core["core"] for core in client.cores() if _is_coming(core, job.model)]
    except (CorelaneError, KeyError):
        return ""
    if coming:
        return f"no core holds {job.model} yet; it is being loaded on {', '.join(coming)}"
    return f"no core holds {job.model}, so {job.id} waits; `corelane models load {job.model}` has the cores load it"


def _is_coming(core: dict[str, Any], version: str) -> bool:
    return any(model["version"] == version and model["state"] in COMING for model in core["models"])


def result_of(client: "Client", job: Job) -> Result:
    """Return the one result of a final job; raise ServiceError if it has none."""
    result = next(iter(job.results or client.iter_results(job.id)), None)
    if result is None:
        raise ServiceError(f"{job.id} is {job.status} and has no result", status=200, problem_code="not_found")
    return result


def check(result: Result) -> None:
    """Raise ServiceError if the question was not answered: it failed, or somebody ended its job."""
    if result.error is not None:
        raise ServiceError(result.error.detail, status=200, problem_code=result.error.code)
    if result.status is not JobStatus.SUCCEEDED:
        raise ServiceError(f"the question was {result.status} before it was answered", status=200, problem_code="gone")


def give_up(client: "Client", job: Job, console: Console) -> None:
    """Cancel a job that nobody waits for any more, or say how."""
    try:
        client.cancel(job.id)
    except CorelaneError:
        console.print(f"{job.id} goes on; `corelane jobs cancel {job.id}` ends it")
        return
    console.print(f"{job.id} is canceled")
