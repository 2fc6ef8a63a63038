"""A bench session as commands open it: the service, the questions and their answers on the idle service."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.progress import Progress

from corelane.cli.output import error_console
from corelane.plugins.lab.cli.options import OfferedLoad, Sending, What, Where
from corelane.plugins.lab.cli.output import command_line, plain_options

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
    **changes: object,
) -> "Iterator[Session]":
    """Yield a session with a service, started for it if asked for; ``changes`` are settings of that service."""
    from corelane.plugins.lab.figures import parse_objective
    from corelane.plugins.lab.senders import Target
    from corelane.plugins.lab.session import Session, describe_service

    good = None if objective is None else parse_objective(objective)
    questions = what.read(offered.seed)
    options = {"no_answer": questions.may_be_unanswerable} if questions.has_answers else {}
    plan = offered.plan(sending, offered.load or offered.steady(1.0))
    questions.is_scored = check != "off" and questions.has_answers
    with where.service(**changes) as (url, key, secret):
        target = Target(url, key, where.model, options, secret)
        session = Session(target, questions, plan, repeat=offered.repeat, objective=good)
        session.service = describe_service(target, plan)
        if check == "idle":
            ask_alone(session, is_open=offered.load is None)
        yield session


def ask_alone(session: "Session", *, is_open: bool = False) -> None:
    """Ask the idle service each question that a run may ask, and show how far that is."""
    from corelane.plugins.lab.session import ask_idle, idle_places

    places = idle_places(session.questions, session.plan, is_open=is_open)
    with progress("asking the idle service", len(places)) as advance:
        ask_idle(session.target, session.questions, session.plan, places, advance)


def modest_rate(session: "Session") -> float:
    """Return a rate for a run that names none, and say why it is that."""
    from corelane.plugins.lab.machine import serving_cores
    from corelane.plugins.lab.session import probe

    found = probe(session.target, session.questions, session.plan, serving_cores(session.target))
    error_console().print(
        f"no rate was given: {found.rate_per_s:g} requests/s, a modest load for {found.cores} cores that answer a lone "
        f"question in {1000 * found.latency_s:.0f} ms; --rate sets another, --sweep finds what the service can do"
    )
    return found.rate_per_s


def report_of(session: "Session", points: "list[LoadPoint]", name: str, context: typer.Context) -> "Report":
    """Return the report of points that a command measured."""
    from corelane.plugins.lab.session import make_report

    for problem in session.problems:
        error_console().print(f"the service's own account is missing: {problem}", style="yellow")
    return make_report(session, points, name=name, command=command_line(), configuration=plain_options(context))


@contextmanager
def progress(text: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show how much of something is done, on a terminal."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as shown:
        task = shown.add_task(text, total=total)
        yield lambda done: shown.update(task, completed=done)
