"""``corelane cache``: have the answers that are kept for equal questions forgotten."""

from typing import Annotated

import typer

from corelane.cli.commands import CommandGroup
from corelane.cli.service import ServiceClient

cache = CommandGroup(help="Answers that are kept for equal questions.", no_args_is_help=True)


@cache.callback()
def _group() -> None:
    """Keep `clear` a command of its own, though it is the only one."""


@cache.command()
def clear(
    client: ServiceClient,
    owner: Annotated[str | None, typer.Option(help="Another owner's, or `*` for all (scope admin).")] = None,
) -> None:
    """Forget your kept answers; jobs and their results stay."""
    client.clear_cache(owner)
