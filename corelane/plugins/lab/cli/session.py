"""Helpers of commands for a session: a default rate, and the report."""

import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import typer

from corelane.cli.output import error_console
from corelane.plugins.lab.cli.output import hidden_arguments, plain_options

if TYPE_CHECKING:
    from corelane.plugins.lab.schema import LoadPoint, Report
    from corelane.plugins.lab.session import Session


def modest_rate(session: "Session") -> float:
    """Choose a rate for a run without one, and print the reason."""
    from corelane.plugins.lab.machine import serving_cores
    from corelane.plugins.lab.session import probe

    cores = serving_cores(session.target)
    rate_per_s, latency_s = probe(session.target, session.workload, session.plan, cores)
    error_console().print(
        f"no rate was given: {rate_per_s:g} requests/s, a modest load for {cores} cores that do a lone "
        f"item in {1000 * latency_s:.0f} ms; --rate sets another, --sweep finds what the service can do"
    )
    return rate_per_s


def report_of(session: "Session", points: "list[LoadPoint]", name: str, ctx: typer.Context) -> "Report":
    """Return the report of points that a command measured."""
    from corelane.plugins.lab.machine import read_machine
    from corelane.plugins.lab.schema import Report
    from corelane.plugins.lab.session import describe_service

    for problem in session.problems:
        error_console().print(f"the service's own account is missing: {problem}", style="yellow")
    plan = session.plan
    reasons = (f"{point.name}: {reason}" for point in points for run in point.runs for reason in run.invalid)
    invalid = list(dict.fromkeys(reasons))
    return Report(
        name=name,
        created_at=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        command=hidden_arguments(["corelane", *sys.argv[1:]]),
        configuration=plain_options(ctx),
        way=plan.way,
        hearing=plan.hearing,
        machine=read_machine(),
        service=session.service or describe_service(session.target, plan),
        workload=session.workload.describe(),
        points=points,
        valid=not invalid,
        invalid=invalid,
    )
