"""``corelane contexts``: store, list, show and delete passages, which questions can name instead of sending them."""

import sys
from itertools import islice
from typing import Annotated

import typer

from corelane.cli.commands import CommandGroup
from corelane.cli.output import print_line, print_list, print_one, short_time
from corelane.cli.service import IdsOption, JsonOption, LimitOption, ServiceClient
from corelane.domain.texts import WIRE_NAMES, TextInfo
from corelane.errors import InvalidInput
from corelane.tasks.question_answering.cli.ask import read_context

ContextArgument = Annotated[str, typer.Argument(metavar="CONTEXT", help="A stored context's id, ctx_….")]

contexts = CommandGroup(name=WIRE_NAMES, help="Your stored contexts: put, list, show, delete.", no_args_is_help=True)


@contexts.command()
def put(
    client: ServiceClient,
    text: Annotated[str, typer.Argument(metavar="FILE", help="The passage: a file, the text itself, or - (stdin).")],
    name: Annotated[str | None, typer.Option(help="A name of your own, shown in lists.")] = None,
    keep_s: Annotated[
        int | None, typer.Option(min=60, help="Seconds to keep it after its last use; as long as the service does.")
    ] = None,
    as_json: JsonOption = False,
    ids: IdsOption = False,
) -> None:
    """Store a passage, once however often it is put; then `corelane ask … --context-id`."""
    passage = read_context(text)
    if not passage.strip():
        raise InvalidInput("the passage is empty; name a file that holds it, or give its text")
    found = client.put_context(passage, name=name, expires_in_s=keep_s)
    if ids:
        typer.echo(found.id)
    else:
        print_one(found, as_json, describe)


@contexts.command("list")
def list_contexts(
    client: ServiceClient, limit: LimitOption = 20, as_json: JsonOption = False, ids: IdsOption = False
) -> None:
    """List your stored contexts, newest first."""

    def row(context: TextInfo) -> tuple[str, ...]:
        times = short_time(context.used_at), short_time(context.expires_at)
        return context.id, f"{context.bytes:,}", f"{context.jobs:,}", *times, context.name or ""

    columns = ("context", "bytes", "jobs", "used", "expires", "name")
    found = islice(client.iter_contexts(), limit)
    print_list(found, columns, row, whole=("context",), as_json=as_json, ids=ids)


@contexts.command()
def show(
    client: ServiceClient,
    context: ContextArgument,
    text: Annotated[bool, typer.Option("--text", help="Print its text alone.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show a stored context's size and times, or its text."""
    if text:
        sys.stdout.write(client.read_context(context))
    else:
        print_one(client.get_context(context), as_json, describe)


@contexts.command()
def delete(client: ServiceClient, context: ContextArgument, as_json: JsonOption = False) -> None:
    """Delete a stored context. Jobs that name it already are answered."""
    client.delete_context(context)
    if as_json:
        print_line({"id": context, "deleted": True})


def describe(context: TextInfo) -> dict[str, str | None]:
    """Return the fields of a context for readers."""
    return {
        "context": context.id,
        "name": context.name,
        "bytes": f"{context.bytes:,}",
        "characters": f"{context.chars:,}",
        "tokens, estimated": f"{context.tokens:,}",
        "jobs": f"{context.jobs:,}",
        "created": context.created_at,
        "used": context.used_at,
        "expires": context.expires_at,
    }
