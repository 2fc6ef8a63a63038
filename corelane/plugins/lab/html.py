"""A report as one page: no script, nothing from outside, its plots inside it.

Every text is escaped. The page's own policy (CSP) forbids scripts and requests, so that a hostile text, such as the
detail of an error, could do nothing even if it were not.
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

import orjson

from corelane.domain.plain import plain
from corelane.plugins.lab.formats import PARTS, interval_text, share_text, three, time_text
from corelane.plugins.lab.page_parts import answer_rows, error_rows, measured_beside, tiles
from corelane.plugins.lab.pictures import plots_of, svg
from corelane.plugins.lab.schema import Point, Report
from corelane.plugins.lab.table import part

POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

#: How the figures are to be read, at the end of the page.
NOTES = (
    "Latency counts from the moment a request was due, so that a service that stalls cannot hide the requests it held "
    "up. Percentiles are by nearest rank. Failures are in no latency.",
    "Throughput is what ended within the measured part. Warm-up and tail are offered and are not measured.",
    "± is the reach of the interval that holds the true mean in 95 of 100 cases, by the t distribution over repeats.",
)


def page(report: Report) -> str:
    """Return the page; raise SetupError if plots cannot be drawn."""
    style = files("corelane.plugins.lab").joinpath("page.css").read_text("utf-8")
    parts = [
        _head(report),
        _alarm(report),
        _tiles(report),
        _experiment(report),
        _plots(report),
        _points(report.points),
        _inside(report.points),
        _cores(report.points),
        _beside(report),
        _answers(report),
        _published(report),
        _assertions(report),
        _setup(report),
        "<footer>" + "".join(f"<p>{escape(note)}</p>" for note in NOTES) + "</footer>",
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_text(report.name)} · Corelane bench</title><style>{style}</style></head>\n"
        f"<body><main>{''.join(parts)}</main></body></html>\n"
    )


def _head(report: Report) -> str:
    service = report.service
    cores = f"{len(service.cores)} cores" if service.cores else ""
    facts = [f"Corelane {service.version}", service.model, service.dtype, cores, report.machine.cpu]
    when = report.created_at[:16].replace("T", " ") + " UTC"
    stamp = '<span class="stamp">valid</span>' if report.valid else '<span class="stamp bad">invalid</span>'
    return (
        f'<header><p class="kicker">Corelane bench</p><h1>{_text(report.name)} {stamp}</h1>'
        f'<p class="facts">{_text(" · ".join(str(each) for each in [*facts, when] if each))}</p></header>'
    )


def _alarm(report: Report) -> str:
    if report.valid:
        return ""
    reasons = "".join(f"<li>{_text(each)}</li>" for each in dict.fromkeys(report.invalid))
    some = any(point.is_valid for point in report.points)
    text = "Not all of this run counts." if some else "This run proves nothing."
    return f'<div class="alarm"><p>{text}</p><ul>{reasons}</ul></div>'


def _tiles(report: Report) -> str:
    cells = [
        f'<div class="{tile.mood}"><dt>{_text(tile.name)}</dt><dd>{_text(tile.value)}'
        + (f"<small>{_text(tile.note)}</small>" if tile.note else "")
        + "</dd></div>"
        for tile in tiles(report)
    ]
    return f'<dl class="tiles">{"".join(cells)}</dl>' if cells else ""


def _plots(report: Report) -> str:
    drawn = [
        f"<figure><figcaption>{_text(plot.title)}<span>{_text(plot.words)}</span></figcaption>{svg(plot)}</figure>"
        for plot in plots_of(report)
    ]
    return f'<div class="plots">{"".join(drawn)}</div>' if drawn else ""


def _points(points: Sequence[Point]) -> str:
    if not points:
        return ""
    rows = []
    for point in points:
        late = max((run.generator.lateness.p95 for run in point.runs if run.generator.lateness), default=None)
        sent = [run.latency_sent.p95 for run in point.runs if run.latency_sent]
        achieved = sum(run.generator.achieved_per_s for run in point.runs) / max(1, len(point.runs))
        rows.append(
            [
                _text(point.name),
                f"{three(achieved)}/s",
                *(_reach(name, point) for name in ("p50_s", "p95_s", "p99_s", "mean_s")),
                time_text(sum(sent) / len(sent)) if sent else "-",
                _reach("items_per_s", point),
                _reach("goodput", point),
                time_text(late),
                str(len(point.runs)) if point.is_valid else '<span class="bad">invalid</span>',
            ]
        )
    names = (
        "load",
        "achieved",
        "p50",
        "p95",
        "p99",
        "mean",
        "p95 from sending",
        "items/s",
        "goodput",
        "late p95",
        "runs",
    )
    return _section("Measured", _table(names, rows))


def _reach(name: str, point: Point) -> str:
    mean, _, reach = interval_text(name, point.figures.get(name)).partition(" ±")
    number, _, unit = reach.partition(" ")
    text = _text(f"{mean} {unit}".strip())
    return f'{text} <span class="reach">±{_text(number)}</span>' if reach else text


def _inside(points: Sequence[Point]) -> str:
    found = [(point, [run.server for run in point.runs if run.server is not None]) for point in points]
    found = [(point, splits) for point, splits in found if splits]
    names = [name for name in PARTS if any(part(each, name) for _, splits in found for each in splits)]
    if not found:
        return ""
    rows = []
    for point, splits in found:
        means = {
            name: [each.mean for split in splits if (each := part(split, name))] for name in (*names, "batch_rows")
        }
        padding = [each.padding_share for each in splits if each.padding_share is not None]
        busy = [share for each in splits for share in each.core_busy.values()]
        rows.append(
            [
                _text(point.name),
                *(time_text(_mean(means[name])) for name in names),
                three(_mean(means["batch_rows"]) or 0.0) if means["batch_rows"] else "-",
                share_text(_mean(padding)),
                share_text(_mean(busy)),
            ]
        )
    return _section("Inside the service, mean", _table(("load", *names, "rows", "padding", "cores at work"), rows))


def _cores(points: Sequence[Point]) -> str:
    """Return each core at the point of most throughput."""
    runs = [run for point in points for run in point.runs if run.server is not None and run.server.core_busy]
    if not runs:
        return ""
    busiest = max(runs, key=lambda run: run.items_per_s)
    if busiest.server is None:
        return ""
    cells = "".join(
        f'<span>{_text(core)}</span><div><i style="width:{100 * min(1.0, max(0.0, share)):.1f}%"></i></div>'
        f"<span>{share_text(share)}, {busiest.server.core_items.get(core, 0):,} items</span>"
        for core, share in sorted(busiest.server.core_busy.items())
    )
    return _section(f"Cores at {three(busiest.items_per_s)} items/s", f'<div class="bars">{cells}</div>')


def _beside(report: Report) -> str:
    beside = report.beside
    if beside is None:
        return ""
    rows = [
        [_text(name), *(time_text(getattr(found, key)) for key in ("p50", "p95", "p99", "max")), f"{found.count:,}"]
        for name, found in (("before", beside.before), ("during", beside.during), ("after", beside.after))
    ]
    first = f", the first after {time_text(beside.first_result_s)}" if beside.first_result_s is not None else ""
    text = f"{beside.items:,} items in {time_text(beside.makespan_s)}{first}: {three(beside.items_per_s)} items/s."
    table = _table(("questions", "p50", "p95", "p99", "max", "count"), rows)
    return _section("A batch beside questions", f"<p>{_text(text)}</p>{table}")


def _answers(report: Report) -> str:
    lines = [f'<p class="{mood}">{_text(text)}</p>' for text, mood in answer_rows(report)]
    rows = [[_text(load), _text(code), f"{count:,}", _text(sample)] for load, code, count, sample in error_rows(report)]
    table = _table(("load", "error", "count", "sample"), rows, text=(1, 3)) if rows else ""
    return _section("Answers", "".join(lines) + table) if lines or rows else ""


def _experiment(report: Report) -> str:
    """Return the rows of a preset, in its own columns."""
    rows = [row for row in report.extra.get("rows", []) if isinstance(row, Mapping)]
    if not rows:
        return ""
    names = list(dict.fromkeys(name for row in rows for name in row))
    return _section("The experiment", _table(names, [[_text(row.get(name, "")) for name in names] for row in rows]))


def _published(report: Report) -> str:
    rows = [[_text(cell) for cell in row] for row in measured_beside(report)]
    names = ("figure", "published", "measured here", "instance", "date", "source")
    return _section("Published beside measured", _table(names, rows, text=(3, 4, 5))) if rows else ""


def _assertions(report: Report) -> str:
    rows = [
        [
            f"<code>{_text(each.get('text', ''))}</code>",
            _text(each.get("shown") or each.get("figure")),
            _text(each.get("point") or ""),
            '<span class="good">holds</span>' if each.get("holds") else '<span class="bad">does not hold</span>',
        ]
        for each in report.assertions
    ]
    return _section("Assertions", _table(("assertion", "figure", "at", ""), rows)) if rows else ""


def _setup(report: Report) -> str:
    machine, service, workload = report.machine, report.service, report.workload
    fields: dict[str, Any] = {
        "Questions": f"{workload.source}: {workload.questions:,} questions, {workload.words:,} words, "
        f"{workload.tokens:,} tokens, contexts of {three(workload.context_words.mean)} words "
        f"(p95 {three(workload.context_words.p95)})",
        "Hash": workload.hash,
        "Sent as": f"{report.way}, heard by {report.hearing}",
        "Service": f"{service.url}, Corelane {service.version}",
        "Model": " ".join(filter(None, (service.model, service.digest, service.dtype))),
        "Cores": ", ".join(service.cores),
        "Machine": f"{machine.cpu}, {machine.cores} cores{', AMX' if machine.amx else ''}, "
        f"{machine.memory_bytes / (1 << 30):.1f} GiB, Linux {machine.kernel}, Python {machine.python}",
    }
    if report.pairing is not None:
        fields["Paired"] = f"side {report.pairing.side} of {report.pairing.order}, session {report.pairing.session}"
    rows = "".join(f"<dt>{name}</dt><dd>{_text(value)}</dd>" for name, value in fields.items() if value)
    # A preset's rows stand in a table above.
    details = {name: value for name, value in report.extra.items() if name not in ("rows", "table")}
    command = _text(" ".join(report.command))
    return _section(
        "How it was measured",
        f'<dl class="plain">{rows}</dl><pre>{command}</pre>'
        + _json("Configuration", report.configuration)
        + (_json("Details", details) if details else ""),
    )


def _json(title: str, value: Mapping[str, Any]) -> str:
    text = orjson.dumps(value, option=orjson.OPT_INDENT_2, default=str).decode()
    return f"<details><summary>{title}</summary><pre>{escape(text)}</pre></details>"


def _section(title: str, body: str) -> str:
    return f"<section><h2>{_text(title)}</h2>{body}</section>"


def _table(names: Iterable[str], rows: Iterable[Sequence[str]], text: Sequence[int] = ()) -> str:
    """Return a table of cells that are HTML; those of the columns ``text`` may be broken."""
    mark = dict.fromkeys(text, ' class="text"')
    head = "".join(f"<th{mark.get(place, '')}>{_text(name)}</th>" for place, name in enumerate(names))
    body = "".join(
        "<tr>" + "".join(f"<td{mark.get(place, '')}>{cell}</td>" for place, cell in enumerate(row)) + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _text(value: object) -> str:
    return escape(plain(str(value)))
