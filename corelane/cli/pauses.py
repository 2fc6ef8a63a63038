"""``corelane pause``, ``resume`` and ``paused``: have a core, a version or an owner take no new work for a while."""

from typing import Annotated

import typer

from corelane.cli.output import print_line, print_list, short_time
from corelane.cli.service import JsonOption, ServiceClient
from corelane.domain.pauses import Pause, PauseKind

KindArgument = Annotated[PauseKind, typer.Argument(help="What it is.", metavar="core|model|owner")]
NameArgument = Annotated[str, typer.Argument(help="A core, host/index; a version, NAME@FINGERPRINT; or an owner.")]


def pause(client: ServiceClient, kind: KindArgument, name: NameArgument, as_json: JsonOption = False) -> None:
    """Take no new work on a core, for a version, or of an owner (needs a key with scope admin).

    Work in flight ends. Jobs are taken in and wait until `corelane resume`.
    """
    made = client.pause(kind, name)
    if as_json:
        print_line(made)
    else:
        typer.echo(made.text)


def resume(client: ServiceClient, kind: KindArgument, name: NameArgument) -> None:
    """Have a core, a version or an owner that is paused go on (needs a key with scope admin)."""
    client.resume(kind, name)
    typer.echo(f"{kind} {name} goes on")


def list_paused(client: ServiceClient, as_json: JsonOption = False) -> None:
    """List what is paused, by whom and since when."""

    def row(found: Pause) -> tuple[str, ...]:
        return found.kind.value, found.name, found.by, short_time(found.since)

    print_list(client.pauses(), ("kind", "name", "by", "since"), row, whole=("kind", "name"), as_json=as_json)
