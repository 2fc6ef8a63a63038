"""The report of a session's points: everything that says what was run, where, and whether it counts."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from corelane.plugins.lab.machine import read_machine, read_service
from corelane.plugins.lab.plan import CORELANE_SENDER, Plan
from corelane.plugins.lab.schema import Load, Point, Report, Run, ServiceInfo
from corelane.plugins.lab.senders import Target
from corelane.plugins.lab.session import Session


def make_report(
    session: Session,
    points: Sequence[Point],
    *,
    name: str,
    command: Sequence[str],
    configuration: Mapping[str, Any],
) -> Report:
    """Return the report of points that were measured in a session."""
    plan, target = session.plan, session.target
    service = session.service or describe_service(target, plan)
    invalid = [f"{point.name}: {reason}" for point in points for reason in reasons(point.runs)]
    return Report(
        name=name,
        created_at=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        command=list(command),
        configuration=dict(configuration),
        way=plan.way,
        hearing=plan.hearing,
        machine=read_machine(),
        service=service,
        workload=session.questions.describe(),
        points=list(points),
        valid=not invalid,
        invalid=invalid,
    )


def describe_service(target: Target, plan: Plan) -> ServiceInfo:
    """Return what a service says of itself, or its address if it is another than Corelane."""
    if plan.sender == CORELANE_SENDER:
        return read_service(target)
    return ServiceInfo(url=target.url, version="", model=target.model)


def reasons(runs: Sequence[Run]) -> list[str]:
    """Return why runs prove nothing, each reason once."""
    return list(dict.fromkeys(reason for run in runs for reason in run.invalid))


def load_name(load: Load) -> str:
    """Return a load in a word or two, as the name of its point."""
    match load.kind:
        case "closed":
            return f"{load.concurrency} callers" if load.concurrency != 1 else "1 caller"
        case "ramp":
            return f"{load.rate_per_s:g}..{load.detail['end_per_s']:g}/s"
        case "stages":
            return str(load.detail["stages"])
        case "trace":
            return f"trace ×{load.detail.get('speed', 1.0):g}"
        case _:
            return f"{load.rate_per_s:g}/s {load.kind}"


def are_answers_right(report: Report) -> bool:
    """Return whether no answer was lost, doubled or unlike that of the idle service."""
    checks = [run.answers for point in report.points for run in point.runs if run.answers is not None]
    if report.beside is not None:
        checks += [each for each in (report.beside.answers, report.beside.batch_answers) if each is not None]
    return not any(check.lost or check.twice or check.differ_from_idle for check in checks)
