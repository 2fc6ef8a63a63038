"""A report as CSV: a line for each run of each point. Pure.

A cell that a spreadsheet would read as a formula begins with an apostrophe.
"""

import csv
import io
from collections.abc import Mapping

from corelane.plugins.lab.alike import describe
from corelane.plugins.lab.formats import PARTS
from corelane.plugins.lab.schema import Point, Report, Run, Spread
from corelane.plugins.lab.table import part, runs_of

#: The characters that make a formula of a cell.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def to_csv(report: Report) -> str:
    """Return all runs, with the names of columns first."""
    rows = [row(report, point, run) for point, run in runs_of(report)] or beside_rows(report)
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(rows[0]) if rows else ["run"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def beside_rows(report: Report) -> list[dict[str, object]]:
    """Return the questions before, beside and after a batch as rows, if that was measured and nothing else."""
    if (beside := report.beside) is None:
        return []
    batch = {name: getattr(beside, name) for name in ("items", "makespan_s", "first_result_s", "items_per_s")}
    parts = (("before", beside.before), ("beside", beside.during), ("after", beside.after))
    return [
        {"run": _safe(report.name), "questions": name, "count": found.count, **_spread("latency", found), **batch}
        for name, found in parts
    ]


def row(report: Report, point: Point, run: Run) -> dict[str, object]:
    """Return a run as cells by the names of columns; times are in seconds."""
    generator, goodput, answers = run.generator, run.goodput, run.answers
    cells: dict[str, object] = {
        "run": report.name,
        "point": point.name,
        "load": describe(point.load),
        "way": report.way,
        "hearing": report.hearing,
        "began_at": run.began_at,
        "measured_s": run.measured_s,
        "requested_per_s": generator.requested_per_s,
        "achieved_per_s": generator.achieved_per_s,
        "requests": run.requests,
        "items": run.items,
        "ok": run.ok,
        "refused": run.refused,
        "failed": run.failed,
        "unfinished": run.unfinished,
        **_spread("latency", run.latency),
        **_spread("latency_sent", run.latency_sent),
        **_spread("first", run.first),
        **_spread("lateness", generator.lateness),
        "generator_cpu_share": generator.cpu_share,
        "requests_per_s": run.requests_per_s,
        "items_per_s": run.items_per_s,
        "tokens_per_s": run.tokens_per_s,
        "objective": goodput.objective if goodput else None,
        "goodput": goodput.share if goodput else None,
        "good_items_per_s": goodput.items_per_s if goodput else None,
        **{f"{name}_mean_s": _mean(part(run.server, name)) for name in PARTS},
        "batch_rows_mean": _mean(run.server.batch_rows) if run.server else None,
        "padding_share": run.server.padding_share if run.server else None,
        "checked": answers.checked if answers else None,
        "lost": answers.lost if answers else None,
        "twice": answers.twice if answers else None,
        "differ_from_idle": answers.differ_from_idle if answers else None,
        "exact": answers.exact if answers else None,
        "f1": answers.f1 if answers else None,
        "invalid": "; ".join(run.invalid),
        "workload": report.workload.hash,
        "version": report.service.version,
        "model": report.service.model,
        "dtype": report.service.dtype,
        "cpu": report.machine.cpu,
    }
    return {name: _safe(value) for name, value in cells.items()}


def _spread(name: str, found: Spread | None) -> Mapping[str, object]:
    return {f"{name}_{key}_s": getattr(found, key, None) for key in ("p50", "p90", "p95", "p99", "mean", "max")}


def _mean(found: Spread | None) -> float | None:
    return found.mean if found is not None else None


def _safe(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value
