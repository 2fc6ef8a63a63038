"""Which reports may be compared, and what differs between them. Pure."""

from collections.abc import Callable, Hashable, Iterable
from typing import Any

from corelane.errors import InvalidInput
from corelane.plugins.lab.schema import SCHEMA, Load, Point, Report, Run

#: Share of a report's runs that may be invalid: those are left out.
MOST_INVALID = 0.25

#: What both reports must have in common, by its name and its path.
SAME = {
    "way to submit": "way",
    "way to hear": "hearing",
    "workload": "workload.hash",
    "dtype of the model": "service.dtype",
    "machine": "machine.cpu",
    "cores of the machine": "machine.cores",
    "AMX": "machine.amx",
}

#: What may differ, and is told.
TOLD = {
    "version": "service.version",
    "model": "service.model",
    "digest of the model": "service.digest",
    "cores of the service": "service.cores",
    "kernel": "machine.kernel",
    "Python": "machine.python",
}


def unlike(a: Report, b: Report) -> list[str]:
    """Return each difference that makes two reports measure different things."""
    reasons = list(_differences(a, b, SAME))
    for name, report in (("A", a), ("B", b)):
        if report.schema_ != SCHEMA:
            reasons.append(f"schema: {name} is {report.schema_}, this version reads {SCHEMA}")
        invalid = invalid_runs(report)
        if len(invalid) > MOST_INVALID * sum(len(point.runs) for point in report.points):
            reasons.append(f"{name} is invalid in {len(invalid)} runs: {invalid[0].invalid[0]}")
    ours, theirs = ({load_key(each.load) for each in report.points} for report in (a, b))
    if not ours & theirs:
        loads = (", ".join(describe(each.load) for each in report.points) or "none" for report in (a, b))
        reasons.append("load: {} in A, {} in B".format(*loads))
    return reasons


def invalid_runs(report: Report) -> list[Run]:
    """Return the runs that prove nothing."""
    return [run for point in report.points for run in point.runs if run.invalid]


def facts(a: Report, b: Report) -> list[str]:
    """Return what else differs, for the reader."""
    left_out = [f"{len(invalid_runs(each))} invalid runs of {name} are left out" for name, each in (("A", a), ("B", b))]
    return [text for text in left_out if not text.startswith("0 ")] + list(_differences(a, b, TOLD))


def match(a: Report, b: Report, *, anyway: bool) -> tuple[list[tuple[Point, Point]], list[str]]:
    """Return the points of the same load in both, and a note for those in one only.

    If none has the same load and they are to be compared anyway, they are matched in their order.
    """
    # Points of a preset may have one load and differ by name; other points may have been named otherwise.
    pairs = _pairs(a, b, lambda point: (point.name, load_key(point.load)))
    pairs = pairs or _pairs(a, b, lambda point: load_key(point.load))
    if not pairs and anyway:
        pairs = list(zip(a.points, b.points, strict=False))
    if not pairs:
        raise InvalidInput("no point of the reports has the same load")
    alone = len(a.points) + len(b.points) - 2 * len(pairs)
    return pairs, [f"{alone} points are in one report only and are left out"] if alone else []


def _pairs(a: Report, b: Report, key: Callable[[Point], Hashable]) -> list[tuple[Point, Point]]:
    theirs = {key(each): each for each in b.points}
    return [(each, theirs[key(each)]) for each in a.points if key(each) in theirs]


def load_key(load: Load) -> str:
    """Return what makes two loads the same: all but the seed, and where a trace lies."""
    return load.model_dump_json(exclude={"seed": True, "detail": {"path"}})


def describe(load: Load) -> str:
    """Return a load in a few words, as ``poisson 12.5/s`` or ``closed 16``."""
    if load.kind == "closed":
        return f"closed {load.concurrency}"
    rate = f"{load.kind} {load.rate_per_s:g}/s" if load.rate_per_s is not None else load.kind
    return f"{rate} for {load.duration_s:g} s" if load.duration_s is not None else rate


def _differences(a: Report, b: Report, paths: dict[str, str]) -> Iterable[str]:
    for name, path in paths.items():
        ours, theirs = _at(a, path), _at(b, path)
        if ours != theirs:
            yield f"{name}: {_text(ours)} in A, {_text(theirs)} in B"


def _at(report: Report, path: str) -> Any:
    value: Any = report
    for part in path.split("."):
        value = getattr(value, part)
    return value


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return f"{len(value)} ({', '.join(map(str, value))})"
    return "not stated" if value is None else str(value)
