"""``corelane cells``: the cells of a service, and its owners among them. It works on their Redis servers."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from corelane.cli.errors import require
from corelane.cli.keys import ServiceRedis, keys
from corelane.cli.output import print_list
from corelane.cli.service import JsonOption
from corelane.errors import InvalidInput, SetupError, Unavailable
from corelane.settings import Settings, read_settings
from corelane.settings.rules import without_password

#: A cell that is silent for longer is away, in seconds.
TIMEOUT_S = 2

COLUMNS = ("cell", "state", "redis", "owners", "cores", "open jobs", "waiting tokens", "backlog")


def cells(as_json: JsonOption = False) -> None:
    """Show the cells of CORELANE_CELLS: whether they answer, their owners, and the work that waits in each."""
    require("api", "redis")
    settings = read_settings()
    if settings.cells is None:
        raise SetupError("this service has one cell: CORELANE_CELLS lists several, as `0=redis://…,1=redis://…`")

    def row(cell: Mapping[str, Any]) -> tuple[str, ...]:
        state = cell["state"] if cell["problem"] is None else f"away: {cell['problem']}"
        figures = [f"{cell[name]:,}" if cell["problem"] is None else "-" for name in FIGURES]
        backlog = f"{cell['backlog_s']:,.1f} s" if cell["problem"] is None else "-"
        return cell["cell"], state, cell["redis"], *figures, backlog

    found = [look(each, name in settings.draining_cells) for name, each in settings.of_cells().items()]
    print_list(found, COLUMNS, row, whole=("cell",), as_json=as_json)
    if any(cell["problem"] for cell in found):
        raise typer.Exit(1)


#: Figures of a cell, in the order of the columns.
FIGURES = ("owners", "cores", "open_jobs", "waiting_tokens")


def look(settings: Settings, is_draining: bool) -> dict[str, Any]:
    """Return how one cell stands."""
    from corelane.store.api_keys import read_keys
    from corelane.store.fleet import Fleet
    from corelane.store.gauges import read_work
    from corelane.store.link.blocking import Link

    about: dict[str, Any] = {
        "cell": settings.cell,
        "state": "draining" if is_draining else "open",
        "redis": without_password(settings.redis_url),
        "problem": None,
    }
    link = Link(settings.redis_url, TIMEOUT_S)
    try:
        work, found = link.read(read_work), link.read(read_keys)
        cores = link.read(lambda read: Fleet(read).cores())
    except Unavailable as error:
        return about | {"problem": error.detail}
    finally:
        link.close()
    homes = {key.owner for key in found if (key.cells or ("0",))[0] == settings.cell and key.revoked_ms is None}
    return about | {
        "owners": len(homes),
        "cores": sum("state" in core for core in cores),
        "open_jobs": sum(work.open_jobs.values()),
        "waiting_tokens": sum(work.outstanding.values()),
        "backlog_s": round(max(work.backlog_s.values(), default=0.0), 3),
    }


@keys.command()
def move(
    found: ServiceRedis,
    owner: Annotated[str, typer.Argument(help="An owner, as `corelane keys list` shows it.")],
    cell: Annotated[str, typer.Option(help="The cell of its new jobs.")],
) -> None:
    """Have an owner's new jobs go to another cell. Jobs, files and batches that it has stay where they are."""
    if (every := found.cell_keys) is None:
        raise InvalidInput("there is one cell alone: CORELANE_CELLS lists several")
    cells = every.move(owner, cell)
    rest = f"; what it has in {', '.join(cells[1:])} stays there" if cells[1:] else ""
    typer.echo(f"new jobs of {owner} go to cell {cells[0]}, within two seconds{rest}")


@keys.command()
def sync(found: ServiceRedis) -> None:
    """Give every cell every key and webhook secret, after one was away while keys were changed, or for a new cell."""
    if (every := found.cell_keys) is None:
        raise InvalidInput("there is one cell alone: CORELANE_CELLS lists several")
    written = every.sync()
    typer.echo(f"{written} keys and secrets written" if written else "every cell has every key and webhook secret")
