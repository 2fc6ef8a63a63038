"""Commands of operators: pauses."""

from typing import Annotated

import typer

from corelane.cli.output import print_list, print_sentence, short_time
from corelane.cli.service import JsonOption, ServiceClient
from corelane.domain.pauses import Pause, PauseKind

KindArgument = Annotated[PauseKind, typer.Argument(help="What it is.", metavar="model|owner")]
NameArgument = Annotated[str, typer.Argument(help="A version, NAME@FINGERPRINT; or an owner.")]


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
