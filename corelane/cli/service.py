"""The service that commands call: at ``--url``, at CORELANE_URL, or else where the settings would start one.

The key is in CORELANE_API_KEY: every user of a machine can see the arguments of a command.
"""

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from corelane.cli.commands import Made
from corelane.cli.waiting import WaitNotice

if TYPE_CHECKING:
    from corelane.client import Client

UrlOption = Annotated[
    str | None, typer.Option(help="The service; CORELANE_URL, or the one of this machine, if not given.")
]
ModelOption = Annotated[str, typer.Option(help="A model version, name or alias.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
IdsOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print ids alone, one a line.")]
LimitOption = Annotated[int, typer.Option(min=1, help="Most entries shown.")]

#: How long a call is repeated while the service does not reply, in seconds. It is short for commands that a user waits
#: for. Long-running commands must survive a restart.
PATIENCE_S, LONG_PATIENCE_S = 1.0, 600.0


def address(url: str | None) -> tuple[str, str | None]:
    """Return where the service is, by the option or else the settings, and the key to send."""
    from corelane.settings import read_settings
    from corelane.settings.address import local_url

    settings = read_settings()
    api_key = None if settings.api_key is None else settings.api_key.get_secret_value()
    return url or settings.url or local_url(settings.host, settings.port), api_key


def connect(url: UrlOption = None, *, patience_s: float = PATIENCE_S, on_wait: WaitNotice | None = None) -> "Client":
    """Return a client of that service, with the key of the settings. Nothing is sent yet.

    ``on_wait`` reports why a call will be repeated; the default writes to standard error.
    """
    from corelane.client import Client

    return Client(*address(url), patience_s=patience_s, on_wait=on_wait or WaitNotice())


ServiceClient = Annotated["Client", Made(connect)]
PatientClient = Annotated["Client", Made(partial(connect, patience_s=LONG_PATIENCE_S))]
