"""``corelane webhooks``: list a job's webhooks, post one again, and receive webhooks to try them out."""

from typing import Annotated, Any

import typer

from corelane.cli.commands import CommandGroup
from corelane.cli.folders import DataOption
from corelane.cli.output import print_list, print_one
from corelane.cli.service import JsonOption, ServiceClient
from corelane.errors import SetupError

webhooks = CommandGroup(help="Webhooks: list a job's, post one again, try them out.", no_args_is_help=True)


@webhooks.command("list")
def list_deliveries(
    client: ServiceClient,
    job: Annotated[str, typer.Argument(metavar="JOB", help="A job's id, or your own name of it.")],
    as_json: JsonOption = False,
) -> None:
    """List the webhooks of a job, posted and still to be posted."""

    def row(each: dict[str, Any]) -> tuple[str, ...]:
        state = (each["id"], each["event"], each["state"], str(each["attempt_count"]))
        # To the second: a failing host is tried again after 30 s.
        following = (each["next_attempt_at"] or "-")[:19].replace("T", " ")
        return *state, following, last_attempt(each) or "-", each["url"]

    columns = ("delivery", "event", "state", "attempts", "next", "last", "receiver")
    whole = ("delivery", "event", "state", "next")
    print_list(client.deliveries(job), columns, row, whole=whole, as_json=as_json)


@webhooks.command()
def redeliver(
    client: ServiceClient,
    delivery: Annotated[str, typer.Argument(metavar="DELIVERY", help="A delivery's id, evt_…: `webhooks list`.")],
    as_json: JsonOption = False,
) -> None:
    """Have a webhook posted again, with the same id and the same bytes."""
    fields = {"delivery": "id", "event": "event", "state": "state", "next": "next_attempt_at", "receiver": "url"}
    found = client.redeliver(delivery)
    print_one(found, as_json, lambda found: {name: found[field] for name, field in fields.items()})


@webhooks.command()
def listen(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free one.")] = 9000,
    secret: Annotated[
        str | None, typer.Option(help="Secret that signs, whsec_…; CORELANE_WEBHOOK_SECRET if not given.")
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, help="End after this many verified events.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print each event as a line of JSON.")] = False,
) -> None:
    """Receive webhooks, verify them and print them, until Ctrl-C."""
    from corelane.cli.receiver import receive

    receive(host, port, secret, as_json, count)


@webhooks.command()
def secret(data: DataOption = None) -> None:
    """Show the service's secret that signs webhooks: the one set, else the one that `corelane serve` made."""
    from corelane.cli.webhook_secrets import kept_secret
    from corelane.settings import read_settings

    settings = read_settings(data_dir=data)
    found = settings.webhook_secret or kept_secret(settings.data_dir)
    if found is None:
        raise SetupError(
            f"there is no secret in {settings.data_dir.resolve()}: `corelane serve` makes one; give its folder "
            "with --data, or set CORELANE_WEBHOOK_SECRET"
        )
    typer.echo(found.get_secret_value())


def last_attempt(delivery: dict[str, Any]) -> str:
    """Return the outcome of the last attempt, if there was one."""
    if not delivery["attempts"]:
        return ""
    last = delivery["attempts"][-1]
    return last["error"] or f"HTTP {last['status']}"
