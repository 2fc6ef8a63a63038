"""The view of ``corelane top``: an overview as text of a given height, the most important lines first. Pure.

Text from a service is shown as it is: it is not read as markup and cannot control the terminal.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Column, Table
from rich.text import Text

from corelane.cli.output import needed_width, plain
from corelane.domain.durations import duration
from corelane.domain.health_issues import HealthIssue
from corelane.domain.overview import CoreOverview, LaneInfo, ModelOverview, Overview, OwnerWork, Sign

#: The sign of the forecast: a mark that is clear without colour, and its colour.
SIGNS = {
    Sign.IDLE: ("·", "green"),
    Sign.DRAINING: ("▼", "green"),
    Sign.GROWING: ("▲", "yellow"),
    Sign.STALLED: ("■", "red"),
    Sign.PAUSED: ("‖", "yellow"),
}

#: States of healthy cores, with their colours; all others are red.
STATES = {
    "busy": "green",
    "idle": "dim",
    "stopped": "dim",
    "starting": "yellow",
    "waiting": "yellow",
    "restarting": "yellow",
}

#: Columns of numbers.
NUMBERS = "busy,host,runtime,memory,claimed,items,jobs,tokens,oldest,in/s,out/s,pass,p95,of cores,padding,failed"
RIGHT = frozenset(NUMBERS.split(","))

#: Columns that are left out if a terminal is too narrow, in this order. Names and states are always shown.
SPARE = (
    *("runtime", "host", "device", "", "padding", "claimed", "pass", "of cores", "memory", "p95", "priority", "in/s"),
    *("items", "tokens"),
)

#: Space between two columns of a table, and width of a bar, in terminal columns.
GAP_CHARS, BAR_CHARS = 2, 10

#: Most lines of health issues, lanes and models, if there are cores to show.
MOST = {"issues": 6, "lanes": 8, "models": 6}

#: Most lines besides the rows of the cores' table: the lines above it, its head, an empty line, and two lines that
#: count what was left out.
FRAME_LINES = 9

#: Lines of any other table besides its rows: an empty line, its head, and one that counts what was left out.
TABLE_LINES = 3


@dataclass(frozen=True, slots=True)
class Frame:
    """The content of the view: the service's address, the last overview, and why there is no newer one."""

    where: str
    overview: Overview | None = None
    problem: str = ""
    hint: str = ""


def render(frame: Frame, width: int, height: int = 0) -> RenderableType:
    """Return a frame for a terminal of this width in at most ``height`` lines; a height of 0 means no limit."""
    title = _line(("corelane ", "bold"), (plain(frame.where), "bold"))
    if frame.overview is not None:
        title.append(f"  {frame.overview.at[:19].replace('T', ' ')} UTC", "dim")
    if frame.hint:
        title.append(f"  {frame.hint}", "dim")
    lines: list[RenderableType] = [title]
    if frame.problem:
        lines.append(Text(f"✗ {plain(frame.problem)}", "bold red"))
    if frame.overview is None:
        return Group(*lines)
    found = frame.overview
    lines += head(found)
    tables: dict[str, tuple[Callable[[Any], Table], Sequence[Any]]] = {
        "lanes": (lane_table, sorted(found.lanes, key=lambda lane: -lane.oldest_wait_s)),
        "owners": (owner_table, found.owners),
        "models": (model_table, sorted(found.models, key=lambda model: -(model.core_share or 0))),
    }
    counts = {"issues": len(found.troubles), "cores": len(found.cores)}
    rows = fit(counts | {kind: len(those) for kind, (_, those) in tables.items()}, height)
    lines += [issue_line(each, is_whole=not height) for each in found.troubles[: rows["issues"]]]
    lines += left_out(len(found.troubles) - rows["issues"], "more health issues")
    # Cores that do not serve come first.
    cores = sorted(found.cores, key=lambda core: (core.state in STATES and not core.reasons, core.name))
    lines += [count_stopped(found.cores), narrow(core_table(cores[: rows["cores"]]), width)]
    lines += left_out(len(found.cores) - rows["cores"], "more cores")
    for kind, (table, those) in tables.items():
        if rows[kind]:
            lines += [Text(), narrow(table(those[: rows[kind]]), width)]
            lines += left_out(len(those) - rows[kind], f"more {kind}")
    return Group(*lines)


def fit(counts: Mapping[str, int], height: int) -> Mapping[str, int]:
    """Return how many rows of each kind fit; a height of 0 means no limit."""
    if not height:
        return counts
    room = max(1, height - FRAME_LINES)
    cores = min(counts["cores"], max(1, room // 3))
    rows = {"issues": min(counts["issues"], MOST["issues"], room - cores)}
    room -= cores + rows["issues"]
    for kind in ("lanes", "owners", "models"):
        rows[kind] = min(counts[kind], MOST.get(kind, counts[kind]), max(0, room - TABLE_LINES))
        room -= rows[kind] and rows[kind] + TABLE_LINES
    return rows | {"cores": min(counts["cores"], cores + max(0, room))}


def head(found: Overview) -> list[RenderableType]:
    """Return the forecast, the work done, and the outcomes of promises."""
    mark, style = SIGNS[found.forecast.sign]
    forecast, done = found.forecast, found.done
    rates = f"{forecast.items_per_s:,.1f} items/s, {forecast.tokens_per_s:,.0f} tokens/s answered"
    rates += f", {forecast.arriving_tokens_per_s:,.0f} arriving"
    counts = [
        f"{name}: {count.items:,} items, {count.jobs:,} jobs" + (f", {count.failed:,} failed" if count.failed else "")
        for name, count in (("last minute", done.last_minute), ("last hour", done.last_hour))
    ]
    if found.latency.p50_s is not None and found.latency.p95_s is not None:
        counts.append(f"jobs take {found.latency.p50_s:.3g} s, p95 {found.latency.p95_s:.3g} s")
    promises = found.promises
    if total := promises.kept + promises.early + promises.late:
        shares = (promises.kept / total, promises.early / total, promises.late / total)
        counts.append("promises: {:.0%} kept, {:.0%} early, {:.0%} late".format(*shares))
    return [
        Text.assemble((f"{mark} {forecast.sign.value}", f"bold {style}"), "  ", plain(forecast.text)),
        _line(rates),
        _line((" · ".join(counts), "dim")),
    ]


def issue_line(issue: HealthIssue, *, is_whole: bool) -> Text:
    """Return a health issue, on one line unless ``is_whole``."""
    text = _line((f"! {plain(issue.part)}: ", "bold yellow"), plain(issue.text))
    text.no_wrap = not is_whole
    return text


def count_stopped(cores: Sequence[CoreOverview]) -> Text:
    """Return a line with the number of cores that the autoscaler has stopped; empty if there are none."""
    stopped = sum(core.state == "stopped" for core in cores)
    return Text(f"{len(cores):,} cores, {stopped:,} stopped by the autoscaler" if stopped else "", "dim")


def left_out(count: int, what: str) -> list[RenderableType]:
    """Return a line that counts what did not fit; none if all did."""
    return [Text(f"… {count:,} {what}", "dim")] if count > 0 else []


def core_table(cores: Sequence[CoreOverview]) -> Table:
    """Return the cores, one a line."""
    table = _table("core", "state", "", "busy", "device", "host", "runtime", "memory", "claimed", "items", "models")
    for core in cores:
        reasons = Text(plain("; ".join(core.reasons)), "red")
        state = Text(core.state, STATES.get(core.state, "bold red"))
        if core.restarts:
            state.append(f" ({core.restarts} restarts)", "yellow")
        table.add_row(
            plain(core.name),
            state,
            Text(bar(core.busy), "green"),
            f"{core.busy:.0%}",
            device(core.device),
            *(f"{core.device[name]:.0%}" if name in core.device else "" for name in ("host_vcpu", "runtime_vcpu")),
            f"{((core.memory_bytes or 0) + core.device.get('memory_bytes', 0)) / 1e6:,.0f} MB",
            f"{core.claimed_tokens:,}",
            f"{core.items:,}",
            reasons if core.reasons else versions(core),
        )
    return table


def lane_table(lanes: Sequence[LaneInfo]) -> Table:
    """Return the lanes, one a line."""
    table = _table("waiting for", "priority", "tokens", "oldest", "backlog")
    for lane in lanes:
        backlog = Text("no core works on it", "red") if lane.backlog_s is None else Text(duration(lane.backlog_s))
        table.add_row(
            plain(lane.version), lane.priority.value, f"{lane.waiting_tokens:,}", duration(lane.oldest_wait_s), backlog
        )
    return table


def owner_table(owners: Sequence[OwnerWork]) -> Table:
    """Return the owners with the most open work, one a line."""
    table = _table("whose", "items", "jobs", "tokens", "oldest")
    for each in owners:
        items = "many" if each.items is None else f"{each.items:,}"
        table.add_row(plain(each.owner), items, f"{each.jobs:,}", f"{each.tokens:,}", duration(each.oldest_wait_s))
    return table


def model_table(models: Sequence[ModelOverview]) -> Table:
    """Return the models, one a line."""
    table = _table("model", "in/s", "out/s", "pass", "p95", "of cores", "padding", "failed")
    for model in models:
        table.add_row(
            plain(model.version),
            f"{model.arriving_items_per_s:,.1f}",
            f"{model.items_per_s:,.1f}",
            _ms(model.compute_mean_s),
            _ms(model.compute_p95_s),
            _share(model.core_share),
            _share(model.padding),
            Text(_share(model.error_rate), "red" if model.error_rate else ""),
        )
    return table


def versions(core: CoreOverview) -> Text:
    """Return a core's versions: names of the ready ones, and states of the others."""
    text = Text()
    for each in core.versions:
        text.append(", " if text else "")
        text.append(plain(each.version))
        if each.state != "ready":
            text.append(f" {each.state}", "yellow")
    return text


def device(told: Mapping[str, float]) -> Text:
    """Return how busy a core's device is, and the errors that it counted."""
    text = Text(f"{told['utilization']:.0%}" if "utilization" in told else "")
    if errors := told.get("errors"):
        text.append(f" {errors:,.0f} errors", "red")
    return text


def bar(share: float) -> str:
    """Return a bar of a fixed width."""
    full = round(BAR_CHARS * min(1.0, max(0.0, share)))
    return "█" * full + "░" * (BAR_CHARS - full)


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1000 * seconds:,.1f} ms"


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}" if 0 < share < 0.1 else f"{share:.0%}"


def _line(*parts: str | tuple[str, str]) -> Text:
    """Return a text that is cut at the end of the line."""
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def narrow(table: Table, width: int) -> Table:
    """Return a table without its least important columns, so that the rest fits, with a model's name at least."""
    columns = table.columns
    last = columns[-1] if columns[-1].header == "models" else None
    names = [] if last is None else [str(cell).partition(" ")[0] for cell in (last.header, *last.cells)]
    least = max(map(cell_len, names), default=0)

    def left() -> int:
        """Return the width that remains for the column of models. Without that column, return the width left over."""
        return width - needed_width(columns) if last is None else width - needed_width(columns[:-1]) - GAP_CHARS

    for name in SPARE:
        if left() < least:
            columns = [column for column in columns if column.header != name]
    if last is not None:
        last.max_width = max(1, left())
    found = _table(*columns)
    found.rows = table.rows
    return found


def _table(*columns: str | Column) -> Table:
    """Make a table whose lines are never wrapped."""

    def made(name: str) -> Column:
        return Column(name, justify="right" if name in RIGHT else "left", no_wrap=True, overflow="ellipsis")

    own = (made(column) if isinstance(column, str) else column for column in columns)
    return Table(*own, box=None, pad_edge=False, header_style="dim")
