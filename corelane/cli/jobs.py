"""``corelane jobs``: list, show, watch, cancel, retry and delete your own jobs, and fetch their results."""

import time
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from corelane.cli.errors import exit_on_error
from corelane.cli.output import make_table, print_fields, print_line, print_table, short_time
from corelane.cli.service import IdsOption, JsonOption, KeyOption, UrlOption, connect
from corelane.domain.jobs import Job, JobStatus

#: A service that is away is tried again this often: a watch outlives its restart.
WATCH_RETRIES = 12

#: A watched job is asked about this often, in seconds; its end is noticed at once.
WATCH_S = 1.0

#: Exit code of a command whose job ended in another way than answered.
NOT_ANSWERED = 2

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="A job's id, or your own name of it.")]

jobs = typer.Typer(help="Your jobs: list, show, watch, cancel, retry, delete.", no_args_is_help=True)


@jobs.command("list")
def list_jobs(
    status: Annotated[list[JobStatus] | None, typer.Option(help="Only those; may be repeated.")] = None,
    model: Annotated[str | None, typer.Option(help="A version, or a model's name.")] = None,
    label: Annotated[list[str] | None, typer.Option(help="Only those with this label; may be repeated.")] = None,
    created_after: Annotated[str | None, typer.Option(help="From this time on, as 2026-11-21T09:00:00Z.")] = None,
    created_before: Annotated[str | None, typer.Option(help="Before this time.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="Most jobs shown.")] = 20,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
    ids: IdsOption = False,
) -> None:
    """List your jobs, newest first."""
    given = {
        "status": status,
        "model": model,
        "label": label,
        "created_after": created_after,
        "created_before": created_before,
    }
    filters: Any = {name: value for name, value in given.items() if value}
    with exit_on_error(), connect(url, api_key) as client:
        whole = ("job", "status", "answered", "created")
        table = make_table(*whole, "model and labels", whole=whole)
        for job in client.iter_jobs(limit=limit, **filters):
            if ids:
                typer.echo(job.id)
            elif as_json:
                print_line(job)
            else:
                counts = f"{job.counts.succeeded:,}/{job.counts.total:,}"
                row = (job.id, job.status, counts, short_time(job.created_at))
                table.add_row(*row, " ".join([job.model, *job.labels]))
        if not (as_json or ids):
            print_table(table)


@jobs.command()
def show(job: JobArgument, url: UrlOption = None, api_key: KeyOption = None, as_json: JsonOption = False) -> None:
    """Show one job."""
    with exit_on_error(), connect(url, api_key) as client:
        say(client.get(job), as_json)


@jobs.command()
def watch(job: JobArgument, url: UrlOption = None, api_key: KeyOption = None, as_json: JsonOption = False) -> None:
    """Follow a job to its end; exit code 2 if not every item was answered."""
    console = Console(stderr=True, highlight=False)
    with exit_on_error(), connect(url, api_key, max_retries=WATCH_RETRIES) as client:
        found = client.get(job)
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
            task = progress.add_task(found.status, total=found.counts.total)
            while True:
                progress.update(task, completed=found.counts.done, description=found.status)
                if found.status.is_final:
                    break
                started = time.monotonic()
                found = client.get(job, WATCH_S)
                if not found.status.is_final:
                    time.sleep(max(0.0, WATCH_S - (time.monotonic() - started)))
        say(found, as_json)
    if found.counts.succeeded < found.counts.total:
        raise typer.Exit(NOT_ANSWERED)


@jobs.command()
def results(job: JobArgument, url: UrlOption = None, api_key: KeyOption = None) -> None:
    """Print a job's results, one a line of JSON, in item order; follows a running job to its end."""
    with exit_on_error(), connect(url, api_key, max_retries=WATCH_RETRIES) as client:
        for result in client.iter_results(job):
            print_line(result)


@jobs.command()
def cancel(job: JobArgument, url: UrlOption = None, api_key: KeyOption = None, as_json: JsonOption = False) -> None:
    """Cancel what is not answered yet; what is answered stays."""
    with exit_on_error(), connect(url, api_key) as client:
        say(client.cancel(job), as_json)


@jobs.command()
def retry(job: JobArgument, url: UrlOption = None, api_key: KeyOption = None, as_json: JsonOption = False) -> None:
    """Ask again what a final job left unanswered, as a new job."""
    with exit_on_error(), connect(url, api_key) as client:
        say(client.retry(job), as_json)


@jobs.command()
def delete(job: JobArgument, url: UrlOption = None, api_key: KeyOption = None, as_json: JsonOption = False) -> None:
    """Forget a job and its results."""
    with exit_on_error(), connect(url, api_key) as client:
        client.delete(job)
        if as_json:
            print_line({"id": job, "deleted": True})


def say(job: Job, as_json: bool) -> None:
    """A job as JSON, or for a reader."""
    if as_json:
        print_line(job)
    else:
        print_fields(describe(job))


def describe(job: Job) -> dict[str, str | None]:
    """What there is to say of a job."""
    counts = {name: number for name, number in job.counts.model_dump().items() if number or name == "total"}
    times = {"created": job.created_at, "started": job.started_at, "finished": job.finished_at}
    expected = job.promise.finish_at if job.promise is not None and not job.status.is_final else None
    return {
        "job": job.id,
        "name": job.name,
        "status": job.status,
        "items": ", ".join(f"{number:,} {name}" for name, number in counts.items()),
        "model": job.model,
        **times,
        "expected": expected,
        "error": None if job.error is None else job.error.detail,
        "labels": " ".join(job.labels),
        "retry of": job.retry_of,
        "metadata": ", ".join(f"{name}={value}" for name, value in job.metadata.items()),
    }
