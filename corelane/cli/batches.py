"""``corelane batches``: start, list, show and cancel your own batches, files of questions that the service holds."""

from collections.abc import Sequence
from itertools import islice
from typing import Annotated

import typer

from corelane.cli.errors import exit_on_error
from corelane.cli.output import make_table, print_fields, print_line, print_table, short_time
from corelane.cli.service import IdsOption, JsonOption, KeyOption, UrlOption, connect
from corelane.domain.batches import Batch, BatchError
from corelane.domain.ids import iso_time

#: Lines named of those that have the same fault.
MOST_LINES = 3

BatchArgument = Annotated[str, typer.Argument(metavar="BATCH", help="A batch's id.")]

batches = typer.Typer(help="Your batches: create, list, show, cancel.", no_args_is_help=True)


@batches.command()
def create(
    file: Annotated[str, typer.Argument(metavar="FILE", help="The id of an uploaded file: `corelane files upload`.")],
    window: Annotated[str, typer.Option(help="What is not answered within it expires: 24h, 90m, 7d.")] = "24h",
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Have every line of an uploaded file answered; it goes on by itself."""
    with exit_on_error(), connect(url, api_key) as client:
        say(client.create_batch(file, completion_window=window), as_json)


@batches.command("list")
def list_batches(
    limit: Annotated[int, typer.Option(min=1, help="Most batches shown.")] = 20,
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
    ids: IdsOption = False,
) -> None:
    """List your batches, newest first."""
    with exit_on_error(), connect(url, api_key) as client:
        whole = ("batch", "status", "created", "output")
        table = make_table("batch", "status", "done", "failed", "created", "output", whole=whole)
        for batch in islice(client.iter_batches(), limit):
            if ids:
                typer.echo(batch.id)
            elif as_json:
                print_line(batch)
            else:
                counts = batch.request_counts
                done = f"{counts.completed + counts.failed:,}/{counts.total:,}"
                row = (
                    batch.id,
                    batch.status,
                    done,
                    f"{counts.failed:,}",
                    short_time(batch.created_at),
                )
                table.add_row(*row, batch.output_file_id or "-")
        if not (as_json or ids):
            print_table(table)


@batches.command()
def show(batch: BatchArgument, url: UrlOption = None, api_key: KeyOption = None, as_json: JsonOption = False) -> None:
    """Show one batch."""
    with exit_on_error(), connect(url, api_key) as client:
        say(client.get_batch(batch), as_json)


@batches.command()
def cancel(batch: BatchArgument, url: UrlOption = None, api_key: KeyOption = None, as_json: JsonOption = False) -> None:
    """End a batch with what is answered by now; its files hold that."""
    with exit_on_error(), connect(url, api_key) as client:
        say(client.cancel_batch(batch), as_json)


def say(batch: Batch, as_json: bool) -> None:
    """A batch as JSON, or for a reader."""
    if as_json:
        print_line(batch)
    else:
        print_fields(describe(batch))


def describe(batch: Batch) -> dict[str, str | None]:
    """What there is to say of a batch."""
    counts = batch.request_counts
    ended_at = batch.completed_at or batch.failed_at or batch.expired_at or batch.cancelled_at
    faults = [] if batch.errors is None else batch.errors.data
    return {
        "batch": batch.id,
        "status": batch.status,
        "lines": f"{counts.total:,} total, {counts.completed:,} completed, {counts.failed:,} failed",
        "created": iso_time(1000 * batch.created_at),
        "ended": None if ended_at is None else iso_time(1000 * ended_at),
        "expires": None if ended_at is not None else iso_time(1000 * batch.expires_at),
        "input": batch.input_file_id,
        "output": batch.output_file_id,
        "errors": batch.error_file_id,
        "jobs": " ".join(batch.jobs),
        "faults": tell_faults(faults),
        "metadata": ", ".join(f"{name}={value}" for name, value in (batch.metadata or {}).items()),
    }


def tell_faults(faults: Sequence[BatchError]) -> str:
    """Return what speaks against a batch, each sentence once with the lines it is of."""
    lines: dict[str, list[int]] = {}
    for fault in faults:
        lines.setdefault(fault.message, []).extend([] if fault.line is None else [fault.line])
    return "; ".join(message + _lines(numbers) for message, numbers in lines.items())


def _lines(numbers: Sequence[int]) -> str:
    if not numbers:
        return ""
    shown = ", ".join(f"{number:,}" for number in numbers[:MOST_LINES])
    more = f" and {len(numbers) - MOST_LINES:,} more" if len(numbers) > MOST_LINES else ""
    return f" ({'line' if len(numbers) == 1 else 'lines'} {shown}{more})"
