"""Tables of presets: rows of cells as Markdown, measured rows first, published ones below, and a caption. Pure."""

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from corelane.plugins.lab.published import NOT_NOTED, NOT_STATED
from corelane.plugins.lab.render import markdown_table
from corelane.plugins.lab.schema import Machine, Published, ServiceInfo
from corelane.plugins.lab.texts import three

#: The columns for published figures, and their formats.
PUBLISHED = {
    "batch": ("batch", "{:.0f}"),
    "mean_s": ("mean ms", "ms"),
    "p50_s": ("p50 ms", "ms"),
    "p95_s": ("p95 ms", "ms"),
    "p99_s": ("p99 ms", "ms"),
    "items_per_s": ("items/s", "{:,.1f}"),
    "cost_per_1m": ("cost of 1M", "${:.3f}"),
}

#: Lines of a document between which a table is replaced.
BEGIN, END = "<!-- bench {}: begin -->", "<!-- bench {}: end -->"


def milliseconds(seconds: float | None) -> str:
    """Return a time in milliseconds, with three digits that count."""
    return "" if seconds is None else three(1000 * seconds)


def published_row(found: Published) -> dict[str, str]:
    """Return a published figure as a row."""
    missing = (NOT_STATED, NOT_NOTED)
    instance, date = (
        f"{name} {value}" if value in missing else value
        for name, value in (("instance", found.instance), ("date", found.date))
    )
    row = {"what": f"published: {found.name}", "where": f"{instance}; {date}"}
    for name, (column, form) in PUBLISHED.items():
        if name in found.figures:
            value = found.figures[name]
            row[column] = milliseconds(value) if form == "ms" else form.format(value)
    return row


def table_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as a table in Markdown; columns in the order in which rows name them first."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    return markdown_table(columns, [[str(row.get(column, "")) for column in columns] for row in rows])


def caption(machine: Machine, service: ServiceInfo, created_at: str, command: str) -> str:
    """Return where and when a table was measured, and the command that makes it again."""
    amx = ", AMX" if machine.amx else ""
    parts = [
        f"{created_at[:10]}, {machine.cpu}, {machine.cores} CPUs{amx}, Python {machine.python}",
        f"Corelane {service.version}, {service.model}" + (f" in {service.dtype}" if service.dtype else ""),
        f"{len(service.cores)} cores",
    ]
    return f"{'; '.join(parts)}. Measured by `{command}`."


def sources(published: Iterable[Published]) -> str:
    """Return the sources of published rows, each once, and the facts that they do not state."""
    names = list(dict.fromkeys(each.source for each in published))
    notes = list(dict.fromkeys(each.note for each in published if re.search(r"not stated|noted here", each.note)))
    return " ".join(filter(None, [f"Published rows: {'; '.join(names)}." if names else "", *notes]))


def wrap(text: str, width: int = 100) -> str:
    """Return text whose paragraphs are wrapped, and whose tables are as they were."""
    parts = text.split("\n\n")
    return "\n\n".join(
        part if part.startswith("|") else textwrap.fill(part, width, break_on_hyphens=False, break_long_words=False)
        for part in parts
    )


def replace_block(document: str, name: str, content: str) -> str | None:
    """Return a document with the block of a preset replaced; None if it has no such block."""
    begin, end = BEGIN.format(name), END.format(name)
    head, found, rest = document.partition(begin)
    _, closed, tail = rest.partition(end)
    if not found or not closed:
        return None
    return f"{head}{begin}\n{content.strip()}\n{end}{tail}"
