"""``corelane webhooks``: list the webhooks of a job or batch, and post one again."""

from typing import Annotated, Any

import typer

from corelane.cli.commands import CommandGroup
from corelane.cli.output import print_list, print_one
from corelane.cli.service import JsonOption, ServiceClient
from corelane.cli.webhook_secrets import secrets

webhooks = CommandGroup(help="Webhooks: list a job's, post one again, secrets that sign them.", no_args_is_help=True)
webhooks.add_typer(secrets, name="secrets")


@webhooks.command("list")
def list_deliveries(
    client: ServiceClient,
    job: Annotated[str, typer.Argument(metavar="JOB", help="A job's or batch's id, or your own name of a job.")],
    as_json: JsonOption = False,
) -> None:
    """List the webhooks of a job or batch, posted and still to be posted."""

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


def last_attempt(delivery: dict[str, Any]) -> str:
    """Return the outcome of the last attempt, if there was one."""
    if not delivery["attempts"]:
        return ""
    last = delivery["attempts"][-1]
    return last["error"] or f"HTTP {last['status']}"
