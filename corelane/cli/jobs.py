"""``corelane jobs``: list, show, watch, cancel, retry and delete jobs, fetch their results, and pause work."""

import time
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from corelane.cli.commands import CommandGroup
from corelane.cli.output import print_line, print_list, print_one, print_sentence, short_time
from corelane.cli.service import IdsOption, JsonOption, LimitOption, PatientClient, ServiceClient
from corelane.domain.job_references import JobInput, JobOutput
from corelane.domain.jobs import Job, JobStatus
from corelane.domain.pauses import Pause, PauseKind
from corelane.domain.usage import Usage

#: Time between two polls of a watched job, in seconds; its end is noticed at once.
WATCH_S = 1.0

#: Exit code of a command whose job ended with unanswered items.
NOT_ANSWERED = 2

KindArgument = Annotated[PauseKind, typer.Argument(help="What it is.", metavar="model|owner")]
NameArgument = Annotated[str, typer.Argument(help="A version, NAME@FINGERPRINT; or an owner.")]
JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="A job's id, or your own name of it.")]

jobs = CommandGroup(help="Your jobs: list, show, watch, cancel, retry, delete; and pauses.", no_args_is_help=True)


@jobs.command("list")
def list_jobs(
    client: ServiceClient,
    *,
    query: Annotated[str | None, typer.Option("--find", help="An id, the beginning of one, or a name.")] = None,
    status: Annotated[list[JobStatus] | None, typer.Option(help="Only these; may be repeated.")] = None,
    model: Annotated[str | None, typer.Option(help="A version, or a model's name.")] = None,
    failed_items: Annotated[bool, typer.Option("--failed-items", help="Only jobs of which items failed.")] = False,
    code: Annotated[str | None, typer.Option(help="Only jobs of which items failed with this code.")] = None,
    created_after: Annotated[str | None, typer.Option(help="From this time on, as 2026-11-21T09:00:00Z.")] = None,
    created_before: Annotated[str | None, typer.Option(help="Before this time.")] = None,
    owner: Annotated[str | None, typer.Option(help="Another owner's jobs, or `*` for all (scope admin).")] = None,
    limit: LimitOption = 20,
    as_json: JsonOption = False,
    ids: IdsOption = False,
) -> None:
    """List your jobs, newest first."""
    given = {"q": query, "status": status, "model": model, "failed_items": failed_items, "code": code}
    given |= {"created_after": created_after, "created_before": created_before, "owner": owner}
    filters: dict[str, Any] = {name: value for name, value in given.items() if value}

    def row(job: Job) -> tuple[str, ...]:
        counts = f"{job.counts.succeeded:,}/{job.counts.total:,}"
        codes = [each.code for each in job.failures or ()]
        about = " ".join([*codes, job.model, *([f"of {job.owner}"] if job.owner else [])])
        return job.id, job.status, counts, short_time(job.created_at), about

    whole = ("job", "status", "answered", "created")
    found = client.iter_jobs(limit=limit, **filters)
    print_list(found, (*whole, "errors and model"), row, whole=whole, as_json=as_json, ids=ids)


@jobs.command()
def show(client: ServiceClient, job: JobArgument, as_json: JsonOption = False) -> None:
    """Show one job."""
    print_one(client.get(job), as_json, describe)


@jobs.command()
def watch(client: PatientClient, job: JobArgument, as_json: JsonOption = False) -> None:
    """Follow a job to its end; exit code 2 if not every item was answered."""
    console = Console(stderr=True, highlight=False)
    found = client.get(job)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(found.status, total=found.counts.total)
        while True:
            progress.update(task, total=found.counts.total, completed=found.counts.done, description=found.status)
            if found.status.is_final:
                break
            started = time.monotonic()
            found = client.get(job, WATCH_S)
            if not found.status.is_final:
                time.sleep(max(0.0, WATCH_S - (time.monotonic() - started)))
    print_one(found, as_json, describe)
    if found.counts.succeeded < found.counts.total or found.status is not JobStatus.SUCCEEDED:
        raise typer.Exit(NOT_ANSWERED)


@jobs.command()
def results(client: PatientClient, job: JobArgument) -> None:
    """Print a job's results, one a line of JSON, in item order; follows a running job to its end."""
    for result in client.iter_results(job):
        print_line(result)


@jobs.command()
def cancel(client: ServiceClient, job: JobArgument, as_json: JsonOption = False) -> None:
    """Cancel the items of a job that are not answered yet."""
    print_one(client.cancel(job), as_json, describe)


@jobs.command()
def retry(client: ServiceClient, job: JobArgument, as_json: JsonOption = False) -> None:
    """Retry the unanswered items of a final job in a new job."""
    print_one(client.retry(job), as_json, describe)


@jobs.command()
def delete(client: ServiceClient, job: JobArgument, as_json: JsonOption = False) -> None:
    """Delete a job and its results."""
    client.delete(job)
    if as_json:
        print_line({"id": job, "deleted": True})


@jobs.command()
def pause(client: ServiceClient, kind: KindArgument, name: NameArgument, as_json: JsonOption = False) -> None:
    """Take no new work for a version, or of an owner (needs a key with scope admin).

    Work in flight ends. Jobs are taken in and wait until `corelane jobs resume`.
    """
    made = client.pause(kind, name)
    print_sentence(made, as_json, made.text)


@jobs.command()
def resume(client: ServiceClient, kind: KindArgument, name: NameArgument) -> None:
    """Have a version or an owner that is paused take work again (needs a key with scope admin)."""
    client.resume(kind, name)
    typer.echo(f"{kind} {name} goes on")


@jobs.command("paused")
def list_paused(client: ServiceClient, as_json: JsonOption = False) -> None:
    """List what is paused, by whom and since when."""

    def row(found: Pause) -> tuple[str, ...]:
        return found.kind.value, found.name, found.by, short_time(found.since)

    print_list(client.pauses(), ("kind", "name", "by", "since"), row, whole=("kind", "name"), as_json=as_json)


def describe(job: Job) -> dict[str, str | None]:
    """Return the fields of a job for readers."""
    counts = {name: number for name, number in job.counts.model_dump().items() if number or name == "total"}
    times = {"created": job.created_at, "started": job.started_at, "finished": job.finished_at}
    failures = (f"{f.code} ({f.count:,}{'' if f.retryable else ', would fail again'})" for f in job.failures or ())
    return {
        "job": job.id,
        "name": job.name,
        "status": job.status,
        "items": ", ".join(f"{number:,} {name}" for name, number in counts.items()),
        "model": job.model,
        "task": job.task,
        **times,
        "not before": job.not_before,
        "waits": job.waiting_for,
        "failed with": ", ".join(failures),
        "error": None if job.error is None else job.error.detail,
        "retry of": job.retry_of,
        "input": None if job.input is None else describe_reference(job.input),
        "output": None if job.output is None else describe_reference(job.output),
        "usage": None if job.usage is None else describe_usage(job.usage),
        "metadata": ", ".join(f"{name}={value}" for name, value in job.metadata.items()),
    }


def describe_reference(found: JobInput | JobOutput) -> str:
    """Return an input or output for readers."""
    return f"{found.url}: {found.state}" + (f", {found.error}" if found.error else "")


def describe_usage(usage: Usage) -> str:
    """Return a job's usage in one line."""
    parts = [f"{usage.items:,} {'item' if usage.items == 1 else 'items'}"]
    parts += [f"{usage.tokens:,} tokens", f"{usage.core_s:,.3f} core seconds"]
    return ", ".join(parts)
