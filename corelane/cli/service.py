"""How the commands that ask a running service find it: ``--url``, CORELANE_URL, else where settings would start one."""

from typing import TYPE_CHECKING, Annotated

import typer

from corelane.cli.waiting import Waiting

if TYPE_CHECKING:
    from corelane.client import Client

UrlOption = Annotated[
    str | None, typer.Option(help="The service; CORELANE_URL, or the one of this machine, if not given.")
]
ModelOption = Annotated[str, typer.Option(help="A model version, name or alias.")]
KeyOption = Annotated[str | None, typer.Option("--api-key", help="Your API key; CORELANE_API_KEY if not given.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
IdsOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print ids alone, one a line.")]

#: A service that is away is tried again this often while somebody waits for the command.
RETRIES = 1


def connect(
    url: str | None, api_key: str | None, *, max_retries: int = RETRIES, waiting: Waiting | None = None
) -> "Client":
    """Make a client of that service, with the key given or set; nothing is sent yet.

    ``waiting`` says why a call is sent again later; on standard error if not given.
    """
    from corelane.client import Client, local_url
    from corelane.settings import read_settings

    settings = read_settings()
    if api_key is None and settings.api_key is not None:
        api_key = settings.api_key.get_secret_value()
    where = url or settings.url or local_url(settings.host, settings.port)
    return Client(where, api_key, max_retries=max_retries, on_wait=waiting or Waiting())
