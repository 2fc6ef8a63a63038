"""``corelane webhooks secrets``: what signs webhooks, an owner's secrets and the one that `corelane serve` keeps.

The value of an owner's secret is printed once, when it is made. If the settings have no secret for the service, `serve`
makes one and keeps it in the data folder.
"""

from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import SecretStr

from corelane.cli.commands import CommandGroup
from corelane.cli.folders import DataOption, keep_private, read_private
from corelane.cli.output import error_console, print_line, print_list, short_time
from corelane.cli.service import JsonOption, ServiceClient
from corelane.domain.webhook_secrets import LONGEST_OVERLAP_S, OVERLAP_S, new_secret
from corelane.errors import SetupError
from corelane.settings import read_settings

#: The file of the service's secret, in the data folder.
FILE = "webhook-secret"

secrets = CommandGroup(help="What signs webhooks: secrets of your own, and the service's.", no_args_is_help=True)

OwnerOption = Annotated[str | None, typer.Option(help="Another owner's (scope admin).")]
OverlapOption = Annotated[
    int,
    typer.Option(min=0, max=LONGEST_OVERLAP_S, help="Seconds for which what signed until now signs as well."),
]


@secrets.command()
def create(
    client: ServiceClient, overlap_s: OverlapOption = OVERLAP_S, owner: OwnerOption = None, as_json: JsonOption = False
) -> None:
    """Make the first secret of your own, and print it, once. The secret alone goes to standard output."""
    _print_made(client.create_webhook_secret(overlap_s, owner=owner), overlap_s, as_json)


@secrets.command()
def rotate(
    client: ServiceClient, overlap_s: OverlapOption = OVERLAP_S, owner: OwnerOption = None, as_json: JsonOption = False
) -> None:
    """Make the next secret, and print it, once; what signed until now ends after the overlap."""
    _print_made(client.create_webhook_secret(overlap_s, rotate=True, owner=owner), overlap_s, as_json)


@secrets.command("list")
def list_secrets(client: ServiceClient, owner: OwnerOption = None, as_json: JsonOption = False) -> None:
    """List what signs your webhooks now, the newest first, without values; `service` is the service's secret."""

    def row(each: dict[str, Any]) -> tuple[str, ...]:
        ends = "never" if each["ends_at"] is None else short_time(each["ends_at"])
        return each["id"], short_time(each["created_at"]), ends

    columns = ("id", "created", "ends")
    print_list(client.webhook_secrets(owner), columns, row, whole=columns, as_json=as_json)


@secrets.command()
def remove(
    client: ServiceClient,
    secret: Annotated[str, typer.Argument(metavar="ID", help="A secret's id: `webhooks secrets list`.")],
    owner: OwnerOption = None,
) -> None:
    """End a secret at once; without any of your own the service's secret signs."""
    client.remove_webhook_secret(secret, owner=owner)


@secrets.command()
def show(data: DataOption = None) -> None:
    """Show the service's secret: the one that is set, or else the one that `corelane serve` made."""
    settings = read_settings(data_dir=data)
    found = settings.webhook_secret or kept_secret(settings.data_dir)
    if found is None:
        raise SetupError(
            f"there is no secret in {settings.data_dir.resolve()}: `corelane serve` makes one; give its folder "
            "with --data, or set CORELANE_WEBHOOK_SECRET"
        )
    typer.echo(found.get_secret_value())


def _print_made(made: dict[str, Any], overlap_s: int, as_json: bool) -> None:
    """Print a new secret: its value alone on standard output, or everything as JSON."""
    if as_json:
        print_line(made)
        return
    beside = f"what signed until now ends in {overlap_s:,} s" if overlap_s else "nothing else signs"
    error_console().print(f"{made['id']} signs from now on; {beside}\nStore it now, it is not shown again:")
    typer.echo(made["secret"])


def kept_secret(data_dir: Path) -> SecretStr | None:
    """Return the service's secret in the data folder, if there is one."""
    path = data_dir / FILE
    if not path.exists():
        return None
    text = read_private(path, "webhook secret")
    if not text.startswith("whsec_") or len(text) < len("whsec_") + 24:
        raise SetupError(f"{path} holds no webhook secret (`whsec_…`); put it back, or remove the file for a new one")
    return SecretStr(text)


def make_secret(data_dir: Path) -> SecretStr:
    """Store a new secret that only this user can read. Return it, or the secret of a process that stored one first."""
    secret = new_secret()
    keep_private(data_dir / FILE, secret)
    return kept_secret(data_dir) or SecretStr(secret)
