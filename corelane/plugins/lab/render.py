"""A report as a terminal, a page, Markdown and CSV show it. The report as JSON is the truth; these are made of it.

Text of the service or of a file is shown as it is: it is never read as markup, and cannot control the terminal. The
page has no script and nothing from outside; its policy (CSP) forbids both.
"""

import csv
import io
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import orjson
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from corelane.domain.plain import plain
from corelane.errors import SetupError
from corelane.errors.extras import install_command
from corelane.plugins.lab import view
from corelane.plugins.lab.compare import ReportComparison, describe
from corelane.plugins.lab.schema import LoadPoint, Report, Run, Spread
from corelane.plugins.lab.texts import interval_text, three, time_text

STYLES = {"good": "green", "bad": "bold red", "warn": "yellow", "quiet": "dim", "": ""}

#: The columns of a row of Markdown, and of one where questions were asked beside a batch.
COLUMNS = ("run", "load", "p50", "p95", "p99", "mean", "items/s", "goodput", "late p95", "answers", "valid")
BESIDE_COLUMNS = ("run", "questions", "p50", "p95", "p99", "count", "batch")

#: The characters that make a formula of a spreadsheet's cell.
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def terminal(report: Report) -> RenderableType:
    """Return everything that a reader of a run needs, the reasons of an invalid one last and in red."""
    what, how = view.head_of(report)
    shown: list[RenderableType] = [Text(f"{plain(report.name)}  {plain(what)}\n{plain(how)}"), Text()]
    for grid in view.grids(report):
        shown += [_table(grid), Text()]
    shown += [_line(line.label, line.text, line.mood) for line in view.lines(report)]
    shown += [Text(f"invalid: {plain(reason)}", "bold red") for reason in dict.fromkeys(report.invalid)]
    return Group(*shown)


def comparison(found: ReportComparison) -> RenderableType:
    """Return how two reports differ."""
    how = "paired, blocks of A B B A" if found.paired else f"not paired, a drift of {found.drift:.0%} allowed for"
    real = sum(each.verdict == "real" for each in found.differences)
    text = f"{real or 'none'} of {len(found.differences)} figures differ by more than {found.least:.0%} for sure"
    return Group(
        _table(view.comparison(found)),
        Text(),
        *(Text(f"B has {plain(each)}", "bold red") for each in found.wrong),
        _line(found.verdict, f"{text} ({how}, {found.confidence:.2%} intervals)"),
        *(Text(f"unlike: {plain(each)}", "yellow") for each in found.unlike),
        *(Text(plain(each), "dim") for each in found.notes),
    )


def _table(grid: view.Grid) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for place, column in enumerate(grid.columns):
        is_text = place == 0 or column in grid.texts
        table.add_column(column, justify="left" if is_text else "right", no_wrap=True, header_style="dim")
    for row in grid.rows:
        table.add_row(*(Text(plain(_text(each)), STYLES[_mood(each)]) for each in row))
    return table


def _line(label: str, text: str, mood: str = "") -> Text:
    return Text.assemble((f"{plain(label)}  ", "bold"), (plain(text), STYLES[mood]))


def _text(cell: view.Cell | str) -> str:
    return cell.text if isinstance(cell, view.Cell) else cell


def _mood(cell: view.Cell | str) -> str:
    return cell.mood if isinstance(cell, view.Cell) else ""


def page(report: Report) -> str:
    """Return a report as one page; raise SetupError if plots cannot be drawn."""
    if find_spec("jinja2") is None:
        raise SetupError(f"a page needs Jinja2: run `{install_command('lab')}`")
    import jinja2

    from corelane.plugins.lab.plots import plots_of, svg

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("corelane.plugins.lab", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: plain(value) if type(value) is str else value,
    )
    return environment.get_template("page.html").render(
        report=report,
        facts=view.head_of(report),
        plots=[(plot.title, b64encode(svg(plot)).decode()) for plot in plots_of(report)],
        first=[view.experiment(report)],
        grids=[*view.grids(report), view.published(report)],
        lines=view.lines(report),
        setup=_setup(report),
        details={
            "Configuration": _json(report.configuration),
            # A preset's rows stand in a table above.
            "Details": _json({name: value for name, value in report.extra.items() if name not in ("rows", "table")}),
        },
    )


def _setup(report: Report) -> dict[str, str]:
    """Return how it was measured, by name."""
    machine, service, workload = report.machine, report.service, report.workload
    words = workload.context_words
    pairing = report.pairing
    fields = {
        "Questions": f"{workload.source}: {workload.questions:,} questions, {workload.words:,} words, "
        f"{workload.tokens:,} tokens, contexts of {three(words.mean)} words (p95 {three(words.p95)})",
        "Hash": workload.hash,
        "Sent as": f"{report.way}, heard by {report.hearing}",
        "Service": f"{service.url}, Corelane {service.version}",
        "Model": " ".join(filter(None, (service.model, service.digest, service.dtype))),
        "Cores": ", ".join(service.cores),
        "Machine": f"{machine.cpu}, {machine.cores} cores{', AMX' if machine.amx else ''}, "
        f"{machine.memory_bytes / (1 << 30):.1f} GiB, Linux {machine.kernel}, Python {machine.python}",
        "Paired": f"side {pairing.side} of {pairing.order}, session {pairing.session}" if pairing else "",
        "Command": " ".join(report.command),
    }
    return {name: value for name, value in fields.items() if value}


def _json(value: Mapping[str, Any]) -> str:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2, default=str).decode() if value else ""


def markdown(report: Report) -> str:
    """Return a row of Markdown for each point, as docs/performance.md has them."""
    rows = [_markdown_cells(report, point) for point in report.points]
    columns: Sequence[str] = COLUMNS
    if not rows and (beside := report.beside) is not None:
        columns = BESIDE_COLUMNS
        batch = f"{beside.items:,} items in {time_text(beside.makespan_s)}, {three(beside.items_per_s)} items/s"
        for name, found in view.questions_of(beside):
            times = (time_text(each) for each in (found.p50, found.p95, found.p99))
            rows.append([report.name, name, *times, f"{found.count:,}", batch if name == "beside" else ""])
    return markdown_table(columns, rows) if rows else ""


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = (" | ".join(map(escape, row)) for row in (columns, *rows))
    head, *rest = (f"| {line} |\n" for line in lines)
    return "".join([head, "| " + " | ".join("---" for _ in columns) + " |\n", *rest])


def escape(text: str) -> str:
    """Return text that stays in its cell and is not read as markup."""
    text = plain(text).replace("&", "&amp;").replace("<", "&lt;")
    return "".join(f"\\{each}" if each in "\\`*_[]|" else each for each in text)


def _markdown_cells(report: Report, point: LoadPoint) -> list[str]:
    late = max((run.generator.lateness.p95 for run in point.runs if run.generator.lateness), default=None)
    checks = [run.answers for run in point.runs if run.answers is not None]
    bad, f1 = view.wrong(checks), view.mean(each.f1 for each in checks)
    answers = (f"{bad:,} wrong" if bad else "right") + (f", F1 {f1:.2f}" if f1 is not None else "")
    names = ("p50_s", "p95_s", "p99_s", "mean_s", "items_per_s", "goodput")
    return [
        report.name,
        point.name,
        *(interval_text(name, point.figures.get(name)) for name in names),
        time_text(late),
        answers if checks else "-",
        "yes" if point.is_valid else "no: " + next(run.invalid[0] for run in point.runs if run.invalid),
    ]


def to_csv(report: Report) -> str:
    """Return a line for each run of each point, with the names of columns first; times are in seconds.

    A cell that a spreadsheet would read as a formula begins with an apostrophe.
    """
    rows = [_csv_row(report, point, run) for point in report.points for run in point.runs]
    if not rows and (beside := report.beside) is not None:
        batch = {name: getattr(beside, name) for name in ("items", "makespan_s", "first_result_s", "items_per_s")}
        rows = [
            {"run": report.name, "questions": name, "count": found.count, **_csv_spread("latency", found), **batch}
            for name, found in view.questions_of(beside)
        ]
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=list(rows[0]) if rows else ["run"], lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _safe(value) for name, value in row.items()} for row in rows)
    return out.getvalue()


def _csv_row(report: Report, point: LoadPoint, run: Run) -> dict[str, Any]:
    generator, goodput, answers, server = run.generator, run.goodput, run.answers, run.server
    counts = ("requests", "items", "ok", "refused", "failed", "unfinished")
    return {
        "run": report.name,
        "point": point.name,
        "load": describe(point.load),
        "way": report.way,
        "hearing": report.hearing,
        "began_at": run.began_at,
        "measured_s": run.measured_s,
        "requested_per_s": generator.requested_per_s,
        "achieved_per_s": generator.achieved_per_s,
        **{name: getattr(run, name) for name in counts},
        **_csv_spread("latency", run.latency),
        **_csv_spread("latency_sent", run.latency_sent),
        **_csv_spread("first", run.first),
        **_csv_spread("lateness", generator.lateness),
        "generator_cpu_share": generator.cpu_share,
        **{name: getattr(run, name) for name in ("requests_per_s", "items_per_s", "tokens_per_s")},
        "objective": getattr(goodput, "objective", None),
        "goodput": getattr(goodput, "share", None),
        "good_items_per_s": getattr(goodput, "items_per_s", None),
        **{f"{name}_mean_s": getattr(view.part(server, name), "mean", None) for name in view.PARTS},
        "batch_rows_mean": getattr(view.part(server, "batch_rows"), "mean", None),
        "padding_share": getattr(server, "padding_share", None),
        **{name: getattr(answers, name, None) for name in ("checked", "lost", "twice", "differ_from_idle")},
        **{name: getattr(answers, name, None) for name in ("exact", "f1")},
        "invalid": "; ".join(run.invalid),
        "workload": report.workload.hash,
        **{name: getattr(report.service, name) for name in ("version", "model", "dtype")},
        "cpu": report.machine.cpu,
    }


def _csv_spread(name: str, found: Spread | None) -> dict[str, Any]:
    return {f"{name}_{key}_s": getattr(found, key, None) for key in ("p50", "p90", "p95", "p99", "mean", "max")}


def _safe(value: object) -> object:
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value
