"""``corelane batch`` of questions at a URL: the service reads them, and writes the results to a URL or has them read.

The run is one job of the service, so an interrupted command loses nothing: `corelane jobs watch` follows it.
"""

import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from rich.console import Console

from corelane.domain.jobs import Job, JobStatus
from corelane.errors import InvalidInput, SetupError

if TYPE_CHECKING:
    from corelane.client import Client
    from corelane.client.endpoints import JobParts

#: Time between two looks at an output that is being written, in seconds.
LOOK_S = 1.0

STANDARD = Path("-")


def as_url(path: Path) -> str | None:
    """Return the URL that a path was given as; None for a file. A path has one slash of the two."""
    scheme, separator, rest = str(path).partition(":/")
    return f"{scheme}://{rest.lstrip('/')}" if separator and scheme in ("s3", "https", "http") else None


def answer_by_reference(
    client: "Client", parts: "JobParts", output: Path, console: Console | None, *, as_json: bool
) -> bool:
    """Submit a job of questions at a URL and see to its results; return whether every item was answered."""
    target = as_url(output)
    if target is None and output != STANDARD and output.exists():
        raise InvalidInput(f"{output} exists: results of questions at a URL go into a new file")
    asked: JobParts = {**parts, "output_url": target}
    job = client.submit(**asked)
    say(console, f"{job.id}: follow it with `corelane jobs watch {job.id}`")
    if target is None:
        write_results(client, job, output)
    job = client.wait(job.id)
    while target is not None and job.output is not None and job.output.state in ("waiting", "writing"):
        time.sleep(LOOK_S)
        job = client.get(job.id)
    if as_json and console is not None:
        console.print_json(data=job.model_dump(mode="json", exclude={"results"}), indent=None, highlight=False)
    else:
        say(console, summary(job))
    is_written = job.output is None or job.output.state == "written"
    return job.status is JobStatus.SUCCEEDED and job.counts.succeeded == job.counts.total and is_written


def write_results(client: "Client", job: Job, output: Path) -> None:
    """Write a job's results as they come, one a line."""
    try:
        opened: Any = nullcontext(sys.stdout.buffer) if output == STANDARD else output.open("xb")
        with opened as sink:
            put_lines(client, job, sink)
    except OSError as error:
        raise SetupError(f"{output}: {error.strerror or error}") from None


def put_lines(client: "Client", job: Job, sink: BinaryIO) -> None:
    """Write each result as a line of JSON."""
    for result in client.iter_results(job.id):
        sink.write(result.model_dump_json().encode() + b"\n")
    sink.flush()


def summary(job: Job) -> str:
    """Return what became of a job as a line."""
    counts = {name: count for name, count in job.counts.model_dump().items() if count and name != "total"}
    said = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    reasons = [each.detail for each in (job.error,) if each is not None]
    if job.output is not None:
        reasons.append(f"results {job.output.state}" + (f": {job.output.error}" if job.output.error else ""))
    return f"{job.status}: " + "; ".join([part for part in (said, *reasons) if part] or ["no items"])


def say(console: Console | None, sentence: str) -> None:
    """Print a line for the person who waits."""
    if console is not None:
        console.print(sentence)
