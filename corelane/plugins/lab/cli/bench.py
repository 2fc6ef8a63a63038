"""``corelane bench``: offer a running service a load; report its speed, its metrics, and whether results were right.

Exit codes: 0; 1 if an assertion does not hold, or results were lost, doubled or wrong; 3 if the run proves nothing,
because the generator did not keep up or nothing was answered. Experiments and comparisons are subcommands.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from corelane.cli.commands import CommandGroup, with_options
from corelane.cli.output import error_console
from corelane.errors import InvalidInput
from corelane.plugins.lab.cli.beside import beside
from corelane.plugins.lab.cli.compare import compare_reports, compare_services
from corelane.plugins.lab.cli.options import (
    DURATION_S,
    LoadOptions,
    OfferedLoad,
    SendingOptions,
    WhatOptions,
    WhereOptions,
)
from corelane.plugins.lab.cli.output import OutputOptions, finish
from corelane.plugins.lab.cli.presets import list_presets, preset
from corelane.plugins.lab.cli.session import modest_rate, report_of

if TYPE_CHECKING:
    from corelane.plugins.lab.figures import Objective
    from corelane.plugins.lab.schema import Report
    from corelane.plugins.lab.session import Session

bench = CommandGroup(help="Measure a service: speed, cost and results.")


def run(
    ctx: typer.Context,
    where: WhereOptions,
    what: WhatOptions,
    offered: LoadOptions,
    sending: SendingOptions,
    outputs: OutputOptions,
    check: Annotated[
        Literal["idle", "references", "off"],
        typer.Option(help="Compare results with the idle service's and with references, with these alone, or not."),
    ] = "idle",
    objective: Annotated[
        str | None, typer.Option(metavar="TIME", help="Goodput: the share within it, as 200ms or first<50ms.")
    ] = None,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="From the idle service over its knee to more than it can do.")
    ] = False,
    points: Annotated[int, typer.Option(min=1, help="Rates of a sweep, at most.")] = 8,
    find_rate: Annotated[
        str | None, typer.Option(metavar="BOUND", help="Search the highest rate that holds it, as p95=200ms.")
    ] = None,
) -> None:
    """Offer a running service a load, and report what came of it."""
    if ctx.invoked_subcommand is not None:
        return
    from corelane.plugins.lab.figures import parse_objective
    from corelane.plugins.lab.find_rate import BOUNDED
    from corelane.plugins.lab.session import Session, ask_idle, describe_service, idle_places

    refuse_two(offered, sweep=sweep, find_rate=find_rate)
    bound = None if find_rate is None else parse_objective(find_rate, BOUNDED)
    good = None if objective is None else parse_objective(objective)
    plan = offered.plan(sending, offered.load or offered.steady(1.0))
    with where.service() as target:
        workload = what.read(offered.seed, what.task_of(target, sending.sender))
        workload.is_scored = check != "off" and workload.has_known
        target = replace(target, task=workload.task, options=workload.options)
        session = Session(target, workload, plan, repeat=offered.repeat, objective=good)
        session.service = describe_service(target, plan)
        if check == "idle":
            with error_console().status("asking the idle service each item"):
                ask_idle(target, workload, plan, idle_places(workload, plan, is_open=offered.load is None))
        load = offered.load
        if load is None and not sweep:
            load = offered.steady(modest_rate(session))
        with outputs.showing(session):
            if load is None:
                report = run_sweep(session, points, ctx)
            elif bound is not None:
                report = run_search(session, bound, load.rate_per_s or 1.0, ctx)
            else:
                report = report_of(session, [session.measure(load.name, load)], "load", ctx)
    finish(report, outputs)


def refuse_two(offered: OfferedLoad, *, sweep: bool, find_rate: str | None) -> None:
    """Raise InvalidInput if an experiment chooses the load and the command line also gives one."""
    stated = {"--sweep": sweep, "--find-rate": find_rate, "a load": offered.load}
    given = [name for name, value in stated.items() if value]
    if len(given) > 1:
        raise InvalidInput(f"{' and '.join(given)} exclude each other: a sweep and a search choose the rates")


def run_sweep(session: "Session", points: int, ctx: typer.Context) -> "Report":
    """Measure the points of a sweep, and find the knee."""
    from corelane.plugins.lab.sweep import SweepPlan
    from corelane.plugins.lab.sweep import sweep as do_sweep

    plan = SweepPlan(points=points, duration_s=session.plan.duration_s or DURATION_S, seed=session.plan.load.seed)
    found = do_sweep(session.measure, plan)
    report = report_of(session, found.points, "sweep", ctx)
    report.knee = found.knee
    report.extra["sweep"] = {"over_saturated": found.over, "stopped": found.stopped}
    report.invalid, report.valid = found.invalid, not found.invalid
    return report


def run_search(session: "Session", bound: "Objective", start_per_s: float, ctx: typer.Context) -> "Report":
    """Search for the highest rate that meets an objective."""
    from corelane.plugins.lab.find_rate import find_rate

    found = find_rate(
        session.measure,
        bound,
        start_per_s=start_per_s,
        duration_s=session.plan.duration_s or DURATION_S,
        seed=session.plan.load.seed,
    )
    report = report_of(session, found.points, "find-rate", ctx)
    report.found_rate = found.describe()
    report.invalid, report.valid = found.invalid, not found.invalid
    return report


bench.callback(invoke_without_command=True)(with_options(run))
bench.command("compare")(compare_reports)
bench.command("ab")(compare_services)
bench.command()(beside)
bench.command()(preset)
bench.command("presets")(list_presets)
