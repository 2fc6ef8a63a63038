"""A bench session as commands open it: the service, the questions and their answers on the idle service."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.progress import Progress

from corelane.cli.output import error_console
from corelane.plugins.lab.cli.options import OfferedLoad, Sending, What, Where
from corelane.plugins.lab.cli.output import hidden_arguments, plain_options

if TYPE_CHECKING:
    from corelane.plugins.lab.schema import LoadPoint, Report
    from corelane.plugins.lab.session import Session


CheckOption = Annotated[
    Literal["idle", "references", "off"],
    typer.Option(help="Compare answers with the idle service's and with references, with these alone, or not."),
]
ObjectiveOption = Annotated[
    str | None, typer.Option(metavar="TIME", help="Goodput: the share within it, as 200ms or first<50ms.")
]


@contextmanager
def open_session(
    where: Where,
    what: What,
    offered: OfferedLoad,
    sending: Sending,
    check: str,
    objective: str | None,
) -> "Iterator[Session]":
    """Yield a session with a service, started for it if asked for."""
    from corelane.plugins.lab.figures import parse_objective
    from corelane.plugins.lab.senders import Target
    from corelane.plugins.lab.session import Session, ask_idle, describe_service, idle_places

    good = None if objective is None else parse_objective(objective)
    questions = what.read(offered.seed)
    options = {"no_answer": questions.may_be_unanswerable} if questions.has_answers else {}
    plan = offered.plan(sending, offered.load or offered.steady(1.0))
    questions.is_scored = check != "off" and questions.has_answers
    with where.service() as (url, key, secret):
        target = Target(url, key, where.model, options, secret)
        session = Session(target, questions, plan, repeat=offered.repeat, objective=good)
        session.service = describe_service(target, plan)
        if check == "idle":
            places = idle_places(questions, plan, is_open=offered.load is None)
            with progress("asking the idle service", len(places)) as advance:
                ask_idle(target, questions, plan, places, advance)
        yield session


def modest_rate(session: "Session") -> float:
    """Return a rate for a run that names none, and say why it is that."""
    from corelane.plugins.lab.machine import serving_cores
    from corelane.plugins.lab.session import probe

    cores = serving_cores(session.target)
    rate_per_s, latency_s = probe(session.target, session.questions, session.plan, cores)
    error_console().print(
        f"no rate was given: {rate_per_s:g} requests/s, a modest load for {cores} cores that answer a lone "
        f"question in {1000 * latency_s:.0f} ms; --rate sets another, --sweep finds what the service can do"
    )
    return rate_per_s


def report_of(session: "Session", points: "list[LoadPoint]", name: str, context: typer.Context) -> "Report":
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
        configuration=plain_options(context),
        way=plan.way,
        hearing=plan.hearing,
        machine=read_machine(),
        service=session.service or describe_service(session.target, plan),
        workload=session.questions.describe(),
        points=points,
        valid=not invalid,
        invalid=invalid,
    )


@contextmanager
def progress(text: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show how much of something is done, on a terminal."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as shown:
        task = shown.add_task(text, total=total)
        yield lambda done: shown.update(task, completed=done)
