"""``corelane batches``: start, list, show and cancel your own batches: uploaded files of items."""

from collections.abc import Sequence
from itertools import islice
from typing import Annotated

import typer

from corelane.cli.commands import CommandGroup
from corelane.cli.output import print_list, print_one, short_time
from corelane.cli.service import IdsOption, JsonOption, LimitOption, ServiceClient
from corelane.domain.batches import Batch, BatchError
from corelane.domain.ids import iso_time

#: Most lines that are listed for the same fault.
MOST_LINES = 3

BatchArgument = Annotated[str, typer.Argument(metavar="BATCH", help="A batch's id.")]

batches = CommandGroup(name="batches", help="Your batches: create, list, show, cancel.", no_args_is_help=True)


@batches.command()
def create(
    client: ServiceClient,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The id of an uploaded file: `corelane files upload`.")],
    window: Annotated[str, typer.Option(help="Lines not answered within it expire: 24h, 90m, 7d.")] = "24h",
    as_json: JsonOption = False,
) -> None:
    """Have every line of an uploaded file answered, in the background."""
    print_one(client.create_batch(file, completion_window=window), as_json, describe)


@batches.command("list")
def list_batches(
    client: ServiceClient, limit: LimitOption = 20, as_json: JsonOption = False, ids: IdsOption = False
) -> None:
    """List your batches, newest first."""

    def row(batch: Batch) -> tuple[str, ...]:
        counts, output = batch.request_counts, batch.output_file_id or "-"
        done = f"{counts.completed + counts.failed:,}/{counts.total:,}"
        return batch.id, batch.status, done, f"{counts.failed:,}", short_time(batch.created_at), output

    columns = ("batch", "status", "done", "failed", "created", "output")
    whole = ("batch", "status", "created", "output")
    print_list(islice(client.iter_batches(), limit), columns, row, whole=whole, as_json=as_json, ids=ids)


@batches.command()
def show(client: ServiceClient, batch: BatchArgument, as_json: JsonOption = False) -> None:
    """Show one batch."""
    print_one(client.get_batch(batch), as_json, describe)


@batches.command()
def cancel(client: ServiceClient, batch: BatchArgument, as_json: JsonOption = False) -> None:
    """End a batch with the results it has by now; its files hold them."""
    print_one(client.cancel_batch(batch), as_json, describe)


def describe(batch: Batch) -> dict[str, str | None]:
    """Return the fields of a batch for readers."""
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
        "faults": list_faults(faults),
        "metadata": ", ".join(f"{name}={value}" for name, value in (batch.metadata or {}).items()),
    }


def list_faults(faults: Sequence[BatchError]) -> str:
    """Return the faults of a batch: each sentence once, with the lines that have it."""
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
