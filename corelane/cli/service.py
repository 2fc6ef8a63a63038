"""How the commands that ask a running service find it: ``--url``, else where the settings would start one here."""

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from corelane.client import Client

UrlOption = Annotated[str | None, typer.Option(help="The service; the one of this machine if not given.")]
ModelOption = Annotated[str, typer.Option(help="A model version, name or alias.")]


def connect(url: str | None, *, max_retries: int) -> "Client":
    """A client of that service; nothing is sent yet."""
    from corelane.client import Client, local_url
    from corelane.settings import read_settings

    if url is None:
        settings = read_settings()
        url = local_url(settings.host, settings.port)
    return Client(url, max_retries=max_retries)
