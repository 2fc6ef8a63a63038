"""Commands of operators: bulk retry and cancel, and pauses."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from corelane.cli.commands import Made
from corelane.cli.output import print_line, print_list, print_sentence, short_time
from corelane.cli.service import JsonOption, ServiceClient
from corelane.domain.bulk import BulkAction, BulkResult
from corelane.domain.jobs import JobStatus
from corelane.domain.pauses import Pause, PauseKind
from corelane.errors import InvalidInput

if TYPE_CHECKING:
    from corelane.client import Client

KindArgument = Annotated[PauseKind, typer.Argument(help="What it is.", metavar="model|owner")]
NameArgument = Annotated[str, typer.Argument(help="A version, NAME@FINGERPRINT; or an owner.")]

DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Change nothing, and say what would be done.")]


def job_filter(
    *,
    query: Annotated[str | None, typer.Option("--find", help="An id, the beginning of one, or a name.")] = None,
    status: Annotated[list[JobStatus] | None, typer.Option(help="Only these; may be repeated.")] = None,
    model: Annotated[str | None, typer.Option(help="A version, or a model's name.")] = None,
    failed_items: Annotated[bool, typer.Option("--failed-items", help="Only jobs of which items failed.")] = False,
    created_after: Annotated[str | None, typer.Option(help="From this time on, as 2026-11-21T09:00:00Z.")] = None,
    created_before: Annotated[str | None, typer.Option(help="Before this time.")] = None,
    owner: Annotated[str | None, typer.Option(help="Another owner's jobs, or `*` for all (scope admin).")] = None,
) -> dict[str, Any]:
    """Return the given filters of jobs."""
    given = {"q": query, "status": status, "model": model, "failed_items": failed_items}
    given |= {"created_after": created_after, "created_before": created_before, "owner": owner}
    return {name: value for name, value in given.items() if value}


FilterOptions = Annotated[dict[str, Any], Made(job_filter)]


def run_bulk(client: "Client", action: BulkAction, filters: dict[str, Any], *, dry_run: bool, as_json: bool) -> None:
    """Apply an action to every job that the filters select, and print what was done."""
    if not filters.keys() - {"owner"}:
        raise InvalidInput("name a JOB, or options that choose jobs, as --status or --model")
    result = client.bulk(action, dry_run=dry_run, **filters)
    if as_json:
        print_line(result)
        return
    for line in bulk_lines(result):
        typer.echo(line)


def bulk_lines(result: BulkResult) -> list[str]:
    """Return the result of a bulk action, in sentences."""
    done = {BulkAction.RETRY: "retried", BulkAction.CANCEL: "canceled"}[result.action]
    verb = f"would be {done}" if result.dry_run else f"{'was' if result.done == 1 else 'were'} {done}"
    lines = [f"{result.done:,} of {result.matched:,} {'job' if result.matched == 1 else 'jobs'} {verb}."]
    return lines + [f"{each.count:,} not ({each.code}): {each.detail}." for each in result.skipped]


def pause(client: ServiceClient, kind: KindArgument, name: NameArgument, as_json: JsonOption = False) -> None:
    """Take no new work for a version, or of an owner (needs a key with scope admin).

    Work in flight ends. Jobs are taken in and wait until `corelane resume`.
    """
    made = client.pause(kind, name)
    print_sentence(made, as_json, made.text)


def resume(client: ServiceClient, kind: KindArgument, name: NameArgument) -> None:
    """Have a version or an owner that is paused take work again (needs a key with scope admin)."""
    client.resume(kind, name)
    typer.echo(f"{kind} {name} goes on")


def list_paused(client: ServiceClient, as_json: JsonOption = False) -> None:
    """List what is paused, by whom and since when."""

    def row(found: Pause) -> tuple[str, ...]:
        return found.kind.value, found.name, found.by, short_time(found.since)

    print_list(client.pauses(), ("kind", "name", "by", "since"), row, whole=("kind", "name"), as_json=as_json)
