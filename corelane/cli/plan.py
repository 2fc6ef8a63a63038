"""``corelane plan``: how many cores of which host a load needs, simulated from the measured times of one core.

The profile comes from a file, or is measured on the running service. ``plan profile`` keeps one, ``plan record`` makes
a trace of what a service was asked, ``plan hosts`` says what fits on each type of host. Exit code 1 if no number of
cores meets the objective.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from corelane.cli.commands import CommandGroup, with_options
from corelane.cli.output import error_console, print_line
from corelane.cli.plan_hosts import hosts, instances_table
from corelane.cli.plan_output import describe, plain, show
from corelane.cli.plan_profile import PROFILE_S, measure, profile, questions_of
from corelane.cli.plan_record import record
from corelane.cli.service import JsonOption, KeyOption, ModelOption, UrlOption
from corelane.domain.instances import CPU
from corelane.errors import InvalidInput
from corelane.settings import read_settings

if TYPE_CHECKING:
    from corelane.domain.arrivals import Arrivals
    from corelane.domain.instances import Instance
    from corelane.planning.candidates import Candidate
    from corelane.planning.mix import Mix
    from corelane.planning.profile import Profile
    from corelane.plugins.fleet.layout import Layout

#: A file with this in its name becomes an override for docker compose.
COMPOSE = "compose"

plan = CommandGroup(help="How many cores of which host a load needs, and what they cost.", no_args_is_help=True)
plan.command()(profile)
plan.command()(record)
plan.command()(hosts)


def forecast_load(
    context: typer.Context,
    rate: Annotated[float | None, typer.Option(min=0.001, help="Requests a second, at random (Poisson).")] = None,
    trace: Annotated[Path | None, typer.Option(help="A trace: its requests instead of a rate.")] = None,
    speed: Annotated[float, typer.Option(min=0.001, help="How many times as fast the trace is taken.")] = 1.0,
    burstiness: Annotated[float, typer.Option(min=0, max=20, help="Variation of the gaps: 0 even, 1 Poisson.")] = 1.0,
    p95: Annotated[float | None, typer.Option(min=0.1, help="The objective: 95 of 100 requests in so many ms.")] = None,
    mix: Annotated[Path | None, typer.Option(help="Questions to ask: SQuAD's layout, or lines of JSON.")] = None,
    items: Annotated[int, typer.Option("--items-per-job", min=1, help="Questions in a request.")] = 1,
    profiles: Annotated[
        list[Path] | None, typer.Option("--profile", help="A saved profile of a core; else the service is measured.")
    ] = None,
    instance: Annotated[list[str] | None, typer.Option(help="Types of host to look at; all if not given.")] = None,
    reserved: Annotated[bool, typer.Option("--reserved", help="Reckon with the prices of reservations.")] = False,
    margin: Annotated[float, typer.Option(min=0, max=0.9, help="Taken off the objective.")] = 0.1,
    confidence: Annotated[float, typer.Option(min=0.1, max=1, help="Share of simulated runs that must meet it.")] = 0.9,
    requests: Annotated[int, typer.Option(min=50, help="Requests of a simulated run.")] = 2000,
    write: Annotated[
        Path | None,
        typer.Option(help="Write it down: *compose*.yml is an override, any other name a Kustomize patch."),
    ] = None,
    seconds: Annotated[float, typer.Option(min=1, help="How long the service is measured.")] = PROFILE_S,
    model: ModelOption = "default",
    url: UrlOption = None,
    api_key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say how many cores of which host answer a load in time, and what that costs."""
    if context.invoked_subcommand is not None:
        return
    from corelane.planning.candidates import choose, compare
    from corelane.planning.search import Demand, edges

    if p95 is None:
        raise InvalidInput("give the objective: --p95 MS")
    arrivals = arrivals_of(rate, trace, speed, burstiness)
    measured, own = read_profiles(profiles or [], model, url, api_key, mix, seconds)
    demand = Demand(
        arrivals, mix_of(mix, own), p95 / 1000, items=items, margin=margin, confidence=confidence, requests=requests
    )
    found, refused = compare(measured, own, demand, instances_of(instance), reserved=reserved)
    if not found:
        raise InvalidInput("; ".join(dict.fromkeys(f"{each.name}: {each.reason}" for each in refused)))
    chosen = choose(found)
    about = describe(chosen, demand, edges(chosen.profile, chosen.outlook.cores, demand))
    if as_json:
        print_line(plain(found, refused, demand, about))
    else:
        show(Console(highlight=False), found, refused, about)
    if write is not None:
        _write(write, chosen, about)


plan.callback(invoke_without_command=True, help=plan.info.help)(with_options(forecast_load))


def arrivals_of(rate: float | None, trace: Path | None, speed: float, burstiness: float) -> "Callable[[int], Arrivals]":
    """Return what makes the arrivals of a seed; raise InvalidInput unless there is a rate or a trace."""
    from corelane.domain.arrivals import replay, steady
    from corelane.domain.traces import read_trace

    if (rate is None) == (trace is None):
        raise InvalidInput("give either --rate or --trace")
    if trace is not None:
        entries = read_trace(trace)
        return lambda _: replay(entries, speed)
    return lambda seed: steady(rate or 0.0, burstiness=burstiness, seed=seed)


def mix_of(path: Path | None, own: "Profile") -> "Mix":
    """Return the mix of a file, or of questions of even lengths where none is given."""
    from corelane.planning.mix import Mix, lengths_of

    lengths = lengths_of((each.question, each.context) for each in questions_of(path).asked)
    return Mix.of(lengths, own.tokens_ratio, own.longest())


def read_profiles(
    paths: Sequence[Path], model: str, url: str | None, api_key: str | None, mix: Path | None, seconds: float
) -> "tuple[dict[str, Profile], Profile]":
    """Return the profiles by family, and the one that others are guessed from: the first, or the service's own."""
    from corelane.planning.profile import load_profile
    from corelane.planning.published import family_of

    found = [load_profile(path) for path in paths]
    if not found:
        found = [measure(url, api_key, model, mix, seconds)]
    return {family_of(each.instance): each for each in reversed(found)}, found[0]


def instances_of(names: list[str] | None) -> "list[Instance]":
    """Return the types of host of these names; those with an accelerator and a price, and this host, if none is named.

    Raises InvalidInput for a name that is not known.
    """
    table = instances_table()
    if names is None:
        here = read_settings().instance or CPU
        return [each for each in table.values() if each.name == here or (each.cores and each.usd_per_hour is not None)]
    unknown = [name for name in names if name not in table]
    if unknown:
        raise InvalidInput(f"{', '.join(unknown)}: no such type of host; there are {', '.join(table)}")
    return [table[name] for name in names]


def _write(path: Path, chosen: "Candidate", about: Sequence[str]) -> None:
    from corelane.planning.deploy import kustomize_patch
    from corelane.plugins.fleet.compose import compose_override

    text = compose_override(layout_of(chosen), about) if COMPOSE in path.name else kustomize_patch(chosen, about)
    path.write_text(text)
    error_console().print(f"wrote {path}")


def layout_of(chosen: "Candidate") -> "Layout":
    """Return the workers of one host of a plan."""
    from corelane.planning.deploy import workers_a_host
    from corelane.plugins.fleet.layout import lay_out

    host = chosen.instance.name if chosen.instance.cores else None
    return lay_out(cores=workers_a_host(chosen), instance=host)
