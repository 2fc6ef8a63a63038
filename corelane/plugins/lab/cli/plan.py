"""``corelane plan``: how many cores of which host a load needs, by a formula over the measured times of one core.

The profile comes from a file, or is measured on the running service. ``plan profile`` saves one, ``plan record`` makes
a trace of what a service was asked, ``plan hosts`` says what fits on each type of host. Exit code 1 if no number of
cores meets the objective.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from corelane.cli.commands import CommandGroup, with_options
from corelane.cli.output import error_console, print_line, print_table
from corelane.cli.service import JsonOption, KeyOption, ModelOption, UrlOption
from corelane.domain.instances import CPU
from corelane.errors import InvalidInput, SetupError
from corelane.plugins.lab.cli.plan_service import (
    PROFILE_S,
    Columns,
    hosts,
    instances_table,
    measure,
    profile,
    table_of,
    workload_of,
)
from corelane.plugins.lab.cli.plan_service import record as record_trace
from corelane.settings import read_settings

if TYPE_CHECKING:
    from corelane.domain.instances import Instance
    from corelane.plugins.lab.planning.forecast import Demand
    from corelane.plugins.lab.planning.hosts import HostChoice

#: A file with this word in its name is written as an override for Docker Compose.
COMPOSE = "compose"


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:,.3g}" if seconds < 1 else f"{1000 * seconds:,.0f}"


def _money(amount: float | None) -> str:
    return "-" if amount is None else f"{amount:,.4g}"


#: The columns of the table: their fields in the JSON plan, and their formats.
COLUMNS: Columns = {
    "host": ("instance", str),
    "cores": ("cores", "{:,}".format),
    "hosts": ("hosts", "{:,}".format),
    "p50 ms": ("p50_s", _ms),
    "p95 ms": ("p95_s", _ms),
    "busy": ("busy", "{:.0%}".format),
    "rows": ("batch_rows", "{:.1f}".format),
    "an hour": ("per_hour", _money),
    "a million": ("per_million", _money),
    "bound by": ("bound_by", str),
    "": ("guess", lambda guess: "guessed" if guess else ""),
}

plan = CommandGroup(help="How many cores of which host a load needs, and what they cost.", no_args_is_help=True)
plan.command()(profile)
plan.command("record")(record_trace)
plan.command()(hosts)


def forecast_load(
    ctx: typer.Context,
    rate: Annotated[float | None, typer.Option(min=0.001, help="Requests a second, at random (Poisson).")] = None,
    trace: Annotated[Path | None, typer.Option(help="A trace: its requests instead of a rate.")] = None,
    speed: Annotated[float, typer.Option(min=0.001, help="How many times as fast the trace is taken.")] = 1.0,
    burstiness: Annotated[float, typer.Option(min=0, max=20, help="Variation of the gaps: 0 even, 1 Poisson.")] = 1.0,
    p95: Annotated[float | None, typer.Option(min=0.1, help="The objective: 95 of 100 requests in so many ms.")] = None,
    mix: Annotated[Path | None, typer.Option(help="Items to send: SQuAD's layout, or lines of JSON.")] = None,
    items: Annotated[int, typer.Option("--items-per-job", min=1, help="Items in a request.")] = 1,
    profiles: Annotated[
        list[Path] | None, typer.Option("--profile", help="A saved profile of a core; else the service is measured.")
    ] = None,
    instance: Annotated[list[str] | None, typer.Option(help="Types of host to look at; all if not given.")] = None,
    reserved: Annotated[bool, typer.Option("--reserved", help="Reckon with the prices of reservations.")] = False,
    margin: Annotated[float, typer.Option(min=0, max=0.9, help="Taken off the objective.")] = 0.1,
    write: Annotated[
        Path | None,
        typer.Option(help="Write it down: *compose*.yml is an override, any other name a Kustomize patch."),
    ] = None,
    seconds: Annotated[float, typer.Option(min=1, help="How long the service is measured.")] = PROFILE_S,
    confidence: Annotated[float | None, typer.Option(hidden=True, help="Of simulated runs: has no effect.")] = None,
    requests: Annotated[int | None, typer.Option(hidden=True, help="Of a simulated run: has no effect.")] = None,
    model: ModelOption = "default",
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say how many cores of which host carry a load in time, and what that costs."""
    if ctx.invoked_subcommand is not None:
        return
    from corelane.plugins.lab.planning.forecast import Mix, demand_of_rate, demand_of_trace
    from corelane.plugins.lab.planning.hosts import choose, compare, family_of
    from corelane.plugins.lab.planning.profile import load_profile

    if p95 is None:
        raise InvalidInput("give the objective: --p95 MS")
    if (rate is None) == (trace is None):
        raise InvalidInput("give either --rate or --trace")
    known = [load_profile(path) for path in profiles or ()] or [measure(url, api_key, model, mix, seconds)]
    # Families without a profile are estimated from the first one.
    measured, own = {family_of(each.instance): each for each in reversed(known)}, known[0]
    asked = Mix.of(workload_of(mix).parts(), own)
    if trace is not None:
        from corelane.plugins.lab.traces import read_trace

        demand = demand_of_trace(read_trace(trace), speed, asked, p95 / 1000, margin=margin)
    else:
        demand = demand_of_rate(rate or 0.0, asked, p95 / 1000, items=items, burstiness=burstiness, margin=margin)
    found, refused = compare(measured, own, demand, instances_of(instance), reserved=reserved)
    if not found:
        raise InvalidInput("; ".join(f"{name}: {reason}" for name, reason in refused.items()))
    if confidence is not None or requests is not None:
        error_console().print("--confidence and --requests have no effect: nothing is simulated")
    chosen = choose(found)
    about = describe(chosen)
    told = plain(found, refused, demand, about)
    if as_json:
        print_line(told)
    else:
        print_table(table_of(told["candidates"], COLUMNS))
        lines = [*(f"{name}: {reason}" for name, reason in refused.items()), "", *about]
        Console(highlight=False, markup=False, soft_wrap=True).print("\n".join(lines))
    if write is not None:
        write_down(write, chosen, about)


plan.callback(invoke_without_command=True, help=plan.info.help)(with_options(forecast_load))


def instances_of(names: list[str] | None) -> "list[Instance]":
    """Return the named types of host, or this host and those with an accelerator and a price; raise InvalidInput."""
    table = instances_table()
    if names is None:
        here = read_settings().instance or CPU
        return [each for each in table.values() if each.name == here or (each.cores and each.usd_per_hour is not None)]
    unknown = [name for name in names if name not in table]
    if unknown:
        raise InvalidInput(f"{', '.join(unknown)}: no such type of host; there are {', '.join(table)}")
    return [table[name] for name in names]


def describe(chosen: "HostChoice") -> list[str]:
    """Return sentences about a candidate: the load, the expected times, its limit, and what was estimated."""
    forecast, demand, seen = chosen.forecast, chosen.forecast.demand, chosen.outlook
    lines = [
        f"{demand.rate_per_s:,.4g} requests/s, {demand.items_per_s:,.4g} items/s of "
        f"{demand.mix.tokens:,.0f} tokens in {demand.mix.windows:.2f} windows each; "
        f"95% within {_ms(demand.objective_s)} ms less {demand.margin:.0%}.",
        f"{_count(seen.cores, 'core')} of {_count(chosen.hosts, 'host')} {chosen.instance.name}: "
        f"p95 {_ms(seen.p95_s)} ms.",
    ]
    if demand.peak > 1:
        lines.append(f"Planned for the busiest minute: {demand.peak:.2f} times the mean rate.")
    if seen.cores > 1:
        fewer = forecast.look(seen.cores - 1)
        lines.append(f"With {_count(fewer.cores, 'core')} the p95 is {_ms(fewer.p95_s)} ms.")
    more = forecast.look(seen.cores + 1)
    lines.append(
        f"With {_count(more.cores, 'core')} it is {_ms(more.p95_s)} ms. "
        f"Above {forecast.breaking_rate(seen.cores):,.4g} requests/s {_count(seen.cores, 'core')} will not do."
    )
    if chosen.guess:
        lines.append(f"A guess: {chosen.guess}.")
    return lines


def plain(
    found: "Sequence[HostChoice]", refused: dict[str, str], demand: "Demand", about: Sequence[str]
) -> dict[str, Any]:
    """Return a plan as plain data."""
    return {
        "requests_per_s": demand.rate_per_s,
        "items_per_s": demand.items_per_s,
        "objective_s": demand.objective_s,
        "share": 0.95,
        "candidates": [
            {
                "instance": each.instance.name,
                **{name: getattr(each.outlook, name) for name in ("cores", "p50_s", "p95_s", "p99_s")},
                # There is one forecast. The field is from the time when runs were simulated.
                "runs_s": [each.outlook.p95_s],
                **{name: getattr(each.outlook, name) for name in ("busy", "batch_rows")},
                **{name: getattr(each, name) for name in ("hosts", "per_hour", "per_million", "guess")},
                "bound_by": each.binds,
            }
            for each in found
        ],
        "refused": refused,
        "about": list(about),
    }


def write_down(path: Path, chosen: "HostChoice", about: Sequence[str]) -> None:
    """Write a plan as an override for Docker Compose, or as a patch for Kustomize."""
    from corelane.cli.app import make_cli
    from corelane.plugins.lab.planning.hosts import kustomize_patch

    if COMPOSE not in path.name:
        path.write_text(kustomize_patch(chosen, about))
    else:
        # The command line may have the command from another plugin.
        command = typer.main.get_group(make_cli()).commands.get("compose")
        if command is None:
            raise SetupError("there is no `corelane compose` to write it; another name than *compose* writes a patch")
        of_type = ["--instance", chosen.instance.name] if chosen.instance.cores else []
        cores = str(chosen.workers_a_host)
        command.main(["--override", "--cores", cores, *of_type, "--output", str(path)], standalone_mode=False)
        path.write_text("".join(f"# {line}\n" for line in about) + path.read_text())
    error_console().print(f"wrote {path}")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
