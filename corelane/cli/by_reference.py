"""Items at a URL: the service reads them and writes the results to a URL, or the command
reads them.

The run is one job of the service, so an interrupted command loses nothing: `corelane jobs watch` follows it.
"""

import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from corelane.domain.jobs import Job, JobStatus
from corelane.errors import InvalidInput

if TYPE_CHECKING:
    from corelane.client import Client
    from corelane.client.endpoints import JobParts

#: Time between two looks at an output that is being written, in seconds.
LOOK_S = 1.0

STANDARD = Path("-")


def as_url(path: Path) -> str | None:
    """Return the URL that was given as a path; None for a file. A path keeps only one of a URL's two slashes."""
    scheme, separator, rest = str(path).partition(":/")
    return f"{scheme}://{rest.lstrip('/')}" if separator and scheme in ("s3", "https", "http") else None


def run_by_reference(client: "Client", parts: "JobParts", output: Path, say: Callable[[str], None]) -> Job:
    """Submit a job of items at a URL, and get its results to ``output``; return the job once all is done."""
    target = as_url(output)
    if target is None and output != STANDARD and output.exists():
        raise InvalidInput(f"{output} exists: results of items at a URL go into a new file")
    asked: JobParts = {**parts, "output_url": target}
    job = client.submit(**asked)
    say(f"{job.id}: follow it with `corelane jobs watch {job.id}`")
    if target is None:
        opened: Any = nullcontext(sys.stdout.buffer) if output == STANDARD else output.open("xb")
        with opened as sink:
            for result in client.iter_results(job.id):
                sink.write(result.model_dump_json().encode() + b"\n")
            sink.flush()
    job = client.wait(job.id)
    while target is not None and job.output is not None and job.output.state in ("waiting", "writing"):
        time.sleep(LOOK_S)
        job = client.get(job.id)
    return job


def is_whole(job: Job) -> bool:
    """Return whether every item was answered, and the results are in the requested place."""
    is_written = job.output is None or job.output.state == "written"
    return job.status is JobStatus.SUCCEEDED and job.counts.succeeded == job.counts.total and is_written


def summary(job: Job) -> str:
    """Return the outcome of a job as a line."""
    counts = {name: count for name, count in job.counts.model_dump().items() if count and name != "total"}
    parts = [", ".join(f"{count:,} {name}" for name, count in counts.items())]
    parts += [] if job.error is None else [job.error.detail]
    if job.output is not None:
        parts.append(f"results {job.output.state}" + (f": {job.output.error}" if job.output.error else ""))
    return f"{job.status}: " + ("; ".join(filter(None, parts)) or "no items")
