"""``corelane bench``: a load on the running service, and how fast it was."""

from pathlib import Path
from typing import Annotated, Any

import typer

from corelane.cli.errors import require
from corelane.cli.output import error_console, make_table, print_line, print_table
from corelane.cli.service import JsonOption, ModelOption, UrlOption, address
from corelane.errors import InvalidInput

#: Seconds of a load, if nothing else ends it.
SECONDS = 30.0

#: From this share of a CPU on, sending the load may have been the bottleneck.
MOST_CPU = 0.9


def bench(
    file: Annotated[
        Path | None, typer.Argument(help="Items, one JSON object a line, or SQuAD's layout; made ones if not given.")
    ] = None,
    callers: Annotated[
        int | None,
        typer.Option("--callers", "-c", min=1, help="Callers, each with one request at a time; 1."),
    ] = None,
    rate: Annotated[float | None, typer.Option(min=0.01, help="In place of callers: requests a second.")] = None,
    one_job: Annotated[bool, typer.Option("--one-job", help="In place of callers: all items as one job.")] = False,
    duration: Annotated[float | None, typer.Option(min=0.1, help="Seconds of load; 30.")] = None,
    requests: Annotated[int | None, typer.Option(min=1, help="Number of requests, in place of a duration.")] = None,
    per_request: Annotated[int, typer.Option(min=1, help="Items of each request.")] = 1,
    items: Annotated[int | None, typer.Option(min=1, help="Most items of the file; or how many to make.")] = None,
    tokens: Annotated[int, typer.Option(min=1, help="Length of made items.")] = 128,
    price_per_hour: Annotated[float | None, typer.Option(min=0, help="Of all hosts, for the cost of items.")] = None,
    model: ModelOption = "default",
    url: UrlOption = None,
    as_json: JsonOption = False,
) -> None:
    """Offer the service a load, and say how fast it was. Exits with 1 if a request failed."""
    import asyncio

    require("worker", "numpy")
    from corelane.plugins.bench.load import Load
    from corelane.plugins.bench.measure import ItemSource, Target, measure

    if sum((callers is not None, rate is not None, one_job)) > 1:
        raise InvalidInput("give one of --callers, --rate and --one-job: each is the whole load")
    if one_job and (requests or duration or per_request > 1):
        raise InvalidInput("--one-job ends with its items: leave --requests, --duration and --per-request out")
    if duration is None and requests is None and not one_job:
        duration = SECONDS
    if rate is None and not one_job:
        callers = callers or 1
    target, source = Target(*address(url), model), ItemSource(file, items, tokens)
    load = Load(callers, rate, duration, requests, per_request)
    found = asyncio.run(measure(target, load, source, price_per_hour))
    if as_json:
        print_line(found)
    else:
        show(found)
    warn(found)
    if found["failed"]:
        raise typer.Exit(1)


def show(found: dict[str, Any]) -> None:
    """Print figures as tables: the load, and each core."""
    typer.echo(
        f"{found['model']} ({found['task']}), {found['items_from']}, {found['load']}, {found['seconds']:.1f} s\n"
    )
    cells = {
        "requests": f"{found['requests']:,}",
        "items/s": f"{found['items_per_s']:,.1f}",
        **{f"{name} ms": f"{found[f'{name}_ms']:,.1f}" for name in ("p50", "p95", "p99") if found[f"{name}_ms"]},
        "failed": f"{sum(found['failed'].values()):,}",
        **({"F1": f"{found['f1']:.1f}"} if found["f1"] is not None else {}),
        **({"cost of 1M": f"{found['cost_per_million']:,.3f}"} if found["cost_per_million"] is not None else {}),
    }
    table = make_table(*cells)
    table.add_row(*cells.values())
    print_table(table)
    if found["cores"]:
        typer.echo()
        table = make_table("core", "at work", whole=("core",))
        for core, busy in found["cores"].items():
            table.add_row(core, f"{busy:.0%}")
        print_table(table)


def warn(found: dict[str, Any]) -> None:
    """Say on standard error what failed, what is not known, and whether this process was the bottleneck."""
    console = error_console()
    for code, count in found["failed"].items():
        console.print(f"{count:,} failed with {code}", style="red")
    if found["cores_unknown"]:
        console.print(f"how busy the cores were is not known: {found['cores_unknown']}")
    if found["client_cpu"] > MOST_CPU:
        console.print(
            "sending took a whole CPU, so the service may do more: send more items a request (--per-request), or start "
            "several benches at once",
            style="yellow",
        )
