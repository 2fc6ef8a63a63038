"""``corelane top``: the service on the terminal, live: what waits, what is wrong, each core, each model.

Without a terminal, the state is printed once. After a lost connection the last state is shown, with a note, until the
service replies again. Text from a service is shown as it is: it is not read as markup and cannot control the
terminal.
"""

import sys
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from corelane.cli.commands import Made
from corelane.cli.errors import sentence_of, unwound_by_sigterm
from corelane.cli.output import plain, print_line
from corelane.cli.service import JsonOption, connect
from corelane.cli.waiting import WaitNotice
from corelane.domain.overview import CoreOverview, ModelOverview, Overview, duration
from corelane.errors import CorelaneError, ServiceError

if TYPE_CHECKING:
    from corelane.client import Client

#: Width of the output if it is not a terminal, in columns.
PRINTED_CHARS = 200

#: Replies for which another try is useless.
REFUSALS = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)

#: States of healthy cores, with their colours; all others are red.
STATES = {"busy": "green", "idle": "dim", "starting": "yellow", "restarting": "yellow"}

#: Columns that are left out of a narrow terminal, in this order. Names and states always have room.
SPARE = ("runtime", "host", "device", "padding", "claimed", "of cores", "restarts", "memory", "in/s", "items", "oldest")

#: Space between two columns, and width of a bar in a line and in a cell, in columns.
GAP_CHARS, BAR_CHARS, CELL_BAR_CHARS = 2, 10, 5

#: Most health issues that are shown, and the number of lines other than those of issues, cores and models.
MOST_ISSUES, FRAME_LINES = 6, 9

LiveClient = Annotated["Client", Made(partial(connect, patience_s=0, on_wait=WaitNotice(quiet=True)))]


def top(
    client: LiveClient,
    interval: Annotated[float, typer.Option(min=0.2, max=3600, help="Seconds between two readings.")] = 2.0,
    as_json: JsonOption = False,
) -> None:
    """Show what waits, what is wrong, each core and each model, live; Ctrl-C ends it."""
    console = Console(highlight=False, markup=False, emoji=False)
    if as_json:
        print_line(client.overview())
    elif not console.is_terminal:
        console.width = PRINTED_CHARS
        console.print(render(client.overview(), title(client.base_url), console.width))
    else:
        watch(client, console, interval)


def watch(client: "Client", console: Console, interval_s: float) -> None:
    """Draw on the terminal's alternate screen until Ctrl-C; raise the service's refusal."""
    found: Overview | None = None
    lost_s, problem = 0.0, ""
    try:
        with (
            unwound_by_sigterm(),
            Live(
                console=console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
            ) as live,
        ):
            while True:
                try:
                    found, problem = client.overview(), ""
                except CorelaneError as error:
                    if isinstance(error, ServiceError) and error.status in REFUSALS:
                        raise
                    lost_s = lost_s if problem else time.monotonic()
                    problem = f"no reply for {time.monotonic() - lost_s:.0f} s: {sentence_of(error)}"
                head = title(client.base_url, f"every {interval_s:g} s, Ctrl-C ends", problem)
                live.update(render(found, head, console.width, console.size.height), refresh=True)
                time.sleep(interval_s)
    except KeyboardInterrupt:
        return


def title(where: str, hint: str = "", problem: str = "") -> list[Text]:
    """Return the first line, and the reason why nothing newer is shown."""
    first = line((f"corelane {plain(where)}", "bold"), (f"  {hint}", "dim"))
    return [first, *([line((f"✗ {plain(problem)}", "bold red"))] if problem else [])]


def render(found: Overview | None, head: Sequence[Text], width: int, height: int = 0) -> RenderableType:
    """Return an overview for a terminal of this width in at most ``height`` lines; a height of 0 means no limit."""
    if found is None:
        return Group(*head)
    issues, models = found.troubles, sorted(found.models, key=lambda model: -(model.core_share or 0))
    odd = [core for core in found.cores if core.state not in STATES or core.reasons]
    well = [core for core in found.cores if core not in odd]
    room = max(3, height - FRAME_LINES - len(head)) if height else sys.maxsize
    shown = min(len(issues), MOST_ISSUES, room // 3) if height else len(issues)
    room -= shown
    # A model has a line as long as the cores have theirs, in cells if they must.
    cell_chars = max((len(plain(core.name)) for core in well), default=0) + CELL_BAR_CHARS + 6
    columns = max(1, (width + GAP_CHARS) // (cell_chars + GAP_CHARS))
    is_long = len(found.cores) + len(models) <= room
    lines_of_odd = min(len(odd), max(1, room // 2)) if height else len(odd)
    in_table = [*odd[:lines_of_odd], *(well if is_long else ())]
    rows_of_cells = 0 if is_long else min(-(-len(well) // columns), max(1, room - lines_of_odd - min(len(models), 3)))
    rows_of_models = max(0, min(len(models), room - len(in_table) - rows_of_cells))
    hidden = {
        "health issues": len(issues) - shown,
        "cores": len(found.cores) - len(in_table) - min(len(well), rows_of_cells * columns),
        "models": len(models) - rows_of_models,
    }
    left_out = ", ".join(f"{count:,} more {what}" for what, count in hidden.items() if count > 0)
    parts: list[RenderableType] = [
        *head,
        now(found),
        *(line((f"! {plain(each.part)}: ", "bold yellow"), plain(each.text)) for each in issues[:shown]),
        Text(),
        count_cores(found.cores),
        core_table(in_table, width) if in_table else Text(end=""),
        cells(well[: rows_of_cells * columns], columns) if rows_of_cells else Text(end=""),
        Text("\n" if rows_of_models else "", end=""),
        model_table(models[:rows_of_models], width) if rows_of_models else Text(end=""),
        *([line((f"… {left_out}", "dim"))] if left_out else []),
    ]
    return Group(*parts)


def now(found: Overview) -> Text:
    """Return what waits, and what was done in the last minute, in a line."""
    done, latency = found.last_minute, found.latency
    parts = [f"last minute {done.items:,} items" + (f", {done.failed:,} failed" if done.failed else "")]
    if latency.p50_s is not None and latency.p95_s is not None:
        parts.append(f"jobs take {latency.p50_s:.3g} s, p95 {latency.p95_s:.3g} s")
    return line((plain(found.waiting.text), "bold"), (" · " + " · ".join(parts), "dim"))


def count_cores(cores: Sequence[CoreOverview]) -> Text:
    """Return the numbers of cores by state, in words."""
    counts = Counter(core.state for core in cores).most_common()
    return line(
        (f"{len(cores):,} cores: " + ", ".join(f"{n:,} {state}" for state, n in counts) if cores else "no core", "dim")
    )


def core_table(cores: Sequence[CoreOverview], width: int) -> Table:
    """Return cores, one a line, with the reasons of those that do not serve."""
    names = ("core", "state", "busy", "device", "host", "runtime", "memory", "claimed", "items", "restarts", "models")
    rows = []
    for core in cores:
        device = core.device
        told = ["", "", "", *(share(device.get(name)) for name in ("utilization", "host_vcpu", "runtime_vcpu"))]
        told += [f"{((core.memory_bytes or 0) + device.get('memory_bytes', 0)) / 1e6:,.0f} MB"]
        told += [f"{core.claimed_tokens:,}", f"{core.items:,}", f"{core.restarts:,}" if core.restarts else ""]
        row = [Text(text) for text in told]
        row[:3] = [
            Text(plain(core.name)),
            Text(core.state, STATES.get(core.state, "bold red")),
            bar(core.busy, BAR_CHARS),
        ]
        if errors := device.get("errors"):
            row[3].append(f" {errors:,.0f} errors", "red")
        held = (each.version if each.state == "ready" else f"{each.version} {each.state}" for each in core.versions)
        rows.append([*row, Text(plain("; ".join(core.reasons) or ", ".join(held)), "red" if core.reasons else "")])
    return fitted(names, rows, width)


def cells(cores: Sequence[CoreOverview], columns: int) -> Table:
    """Return cores in cells, several a line: the name, and how busy each is."""
    grid = Table.grid(padding=(0, GAP_CHARS, 0, 0))
    made = [Text.assemble(f"{plain(core.name)} ", bar(core.busy, CELL_BAR_CHARS)) for core in cores]
    for at in range(0, len(made), columns):
        grid.add_row(*made[at : at + columns])
    return grid


def model_table(models: Sequence[ModelOverview], width: int) -> Table:
    """Return models, one a line."""
    names = ("model", "waits", "oldest", "in/s", "out/s", "pass p95", "of cores", "padding", "failed")
    rows = []
    for model in models:
        p95, failed = model.compute_p95_s, model.error_rate
        told = [
            plain(model.version),
            f"{model.waiting_tokens:,}",
            duration(model.oldest_wait_s) if model.oldest_wait_s else "",
        ]
        told += [f"{model.arriving_items_per_s:,.1f}", f"{model.items_per_s:,.1f}"]
        told += ["" if p95 is None else f"{1000 * p95:,.1f} ms", share(model.core_share), share(model.padding)]
        rows.append([*map(Text, told), Text(share(failed), "red" if failed else "")])
    return fitted(names, rows, width)


def bar(busy: float, chars: int) -> Text:
    """Return a bar with its share."""
    full = round(chars * min(1.0, max(0.0, busy)))
    return Text.assemble(("█" * full, "green"), ("░" * (chars - full), "dim"), f" {busy:4.0%}")


def share(value: float | None) -> str:
    """Return a share; empty if it was not measured."""
    return "" if value is None else f"{value:.1%}" if 0 < value < 0.1 else f"{value:.0%}"


def line(*parts: str | tuple[str, str]) -> Text:
    """Return a text that is cut at the end of the line."""
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def fitted(names: Sequence[str], rows: Sequence[Sequence[Text]], width: int) -> Table:
    """Return a table without its least important columns, so that the rest fits; a last column of texts is cut."""
    widths = {name: max(len(name), *(row[at].cell_len for row in rows)) for at, name in enumerate(names)}
    if names[-1] == "models":
        widths["models"] = max(len(row[-1].plain.partition(",")[0].partition(" ")[0]) for row in rows)
    kept = [name for at, name in enumerate(names) if any(row[at] for row in rows)]
    for spare in (None, *SPARE):
        kept = [name for name in kept if name != spare]
        if sum(widths[name] + GAP_CHARS for name in kept) - GAP_CHARS <= width:
            break
    table = Table(box=None, pad_edge=False, padding=(0, GAP_CHARS, 0, 0), header_style="dim")
    left = width - sum(widths[name] + GAP_CHARS for name in kept[:-1])
    for name in kept:
        is_text, is_last = name in ("core", "state", "busy", "model", "models"), name == names[-1]
        table.add_column(
            name,
            justify="left" if is_text else "right",
            no_wrap=True,
            overflow="ellipsis",
            min_width=None if is_last else widths[name],
            max_width=max(1, left) if is_last else None,
        )
    for row in rows:
        table.add_row(*(row[names.index(name)] for name in kept))
    return table
