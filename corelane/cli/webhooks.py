"""``corelane webhooks``: what became of a job's webhooks, one posted again, and a receiver for trying them out."""

from pathlib import Path
from typing import Annotated, Any

import typer

from corelane.cli.errors import exit_on_error
from corelane.cli.output import make_table, print_fields, print_line, print_table, short_time
from corelane.cli.service import JsonOption, KeyOption, UrlOption, connect
from corelane.errors import SetupError

webhooks = typer.Typer(help="Webhooks: list a job's, post one again, try them out.", no_args_is_help=True)


@webhooks.command("list")
def list_deliveries(
    job: Annotated[str, typer.Argument(metavar="JOB", help="A job's id, or your own name of it.")],
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """List what was, or is still to be, posted about a job."""
    with exit_on_error(), connect(url, api_key) as client:
        whole = ("delivery", "event", "state", "next")
        columns = ("delivery", "event", "state", "attempts", "next", "last", "receiver")
        table = make_table(*columns, whole=whole)
        for each in client.deliveries(job):
            if as_json:
                print_line(each)
            else:
                row = (each["id"], each["event"], each["state"], str(each["attempt_count"]))
                table.add_row(*row, short_time(each["next_attempt_at"]), last_attempt(each) or "-", each["url"])
        if not as_json:
            print_table(table)


@webhooks.command()
def redeliver(
    delivery: Annotated[str, typer.Argument(metavar="DELIVERY", help="A delivery's id, evt_…: `webhooks list`.")],
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Have a webhook posted again, with the same id and the same bytes."""
    with exit_on_error(), connect(url, api_key) as client:
        found = client.redeliver(delivery)
        if as_json:
            print_line(found)
            return
        told = {"delivery": "id", "event": "event", "state": "state", "next": "next_attempt_at", "receiver": "url"}
        print_fields({name: found[field] for name, field in told.items()})


@webhooks.command()
def listen(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free one.")] = 9000,
    secret: Annotated[
        str | None, typer.Option(help="Secret that signs, whsec_…; CORELANE_WEBHOOK_SECRET if not given.")
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, help="End after so many verified events.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print each event as a line of JSON.")] = False,
) -> None:
    """Receive webhooks, verify them and print them, until Ctrl-C."""
    with exit_on_error():
        from corelane.cli.receiver import receive

        receive(host, port, secret, as_json, count)


@webhooks.command()
def secret(
    data: Annotated[Path | None, typer.Option(help="The data folder of `corelane serve`.")] = None,
) -> None:
    """Show the secret that signs webhooks: the one set, else the one that `corelane serve` made."""
    with exit_on_error():
        from corelane.cli.webhook_secret import kept_secret
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
    """What came of the last attempt, if there was one."""
    if not delivery["attempts"]:
        return ""
    last = delivery["attempts"][-1]
    return last["error"] or f"HTTP {last['status']}"
