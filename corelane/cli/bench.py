"""``corelane bench``: offers a running service a load, and reports speed, the service's own account and the answers.

Exit codes: 0; 1 if an assertion does not hold, or answers were lost, doubled or wrong; 3 if the run proves nothing,
because the generator did not keep up or nothing was answered. Experiments and comparisons are commands of the group.
"""

import sys
from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from corelane.cli.bench_options import LoadOptions, SendingOptions, WhatOptions, Where, WhereOptions
from corelane.cli.bench_output import Outputs, OutputOptions
from corelane.cli.commands import CommandGroup, with_options
from corelane.cli.output import error_console
from corelane.errors import InvalidInput

if TYPE_CHECKING:
    from corelane.bench.generator import Plan, Target
    from corelane.bench.schema import Point, Report
    from corelane.bench.session import Session
    from corelane.bench.workload import Questions

#: An assertion does not hold, or answers are not right; the run proves nothing.
NOT_HELD, INVALID = 1, 3

bench = CommandGroup(help="Measure a service: speed, cost and answers.")


class Check(StrEnum):
    """What answers under load are compared with."""

    IDLE = "idle"
    REFERENCES = "references"
    OFF = "off"


def run(
    context: typer.Context,
    where: WhereOptions,
    what: WhatOptions,
    offered: LoadOptions,
    sending: SendingOptions,
    outputs: OutputOptions,
    check: Annotated[
        Check, typer.Option(help="Compare answers with those of the idle service, with references alone, or not.")
    ] = Check.IDLE,
    objective: Annotated[
        str | None, typer.Option(metavar="TIME", help="Goodput: the share within it, as 200ms or first<50ms.")
    ] = None,
) -> None:
    """Offer a running service a load, and report what came of it."""
    if context.invoked_subcommand is not None:
        return
    questions = what.read(offered.seed)
    with where.service() as (url, key, secret):
        target = make_target(where, questions, url, key, secret)
        plan = sending.plan(offered, offered.load or offered.steady(1.0))
        session = prepare(target, questions, plan, check, repeat=offered.repeat, objective=objective, outputs=outputs)
        load = offered.load or offered.steady(modest_rate(session))
        with outputs.showing(session):
            points = [session.measure(load_name(load), load)]
        report = make_report(session, points, "load", context)
    finish(report, outputs)


bench.callback(invoke_without_command=True)(with_options(run))
