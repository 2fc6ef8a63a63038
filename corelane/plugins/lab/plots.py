"""What is drawn of a report, plot by plot. Needs matplotlib."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from corelane.domain.plain import plain
from corelane.plugins.lab.formats import PARTS, three
from corelane.plugins.lab.pictures import Plot
from corelane.plugins.lab.schema import Beside, Interval, Point, Report
from corelane.plugins.lab.spreads import thinned
from corelane.plugins.lab.table import part

#: Percentiles that are drawn, with their colours.
PERCENTILES = {"p99_s": ("p99", "quiet"), "p95_s": ("p95", "accent"), "p50_s": ("p50", "soft")}

#: Distributions in one plot at most: the first, the last and those between.
MOST_LINES = 6

#: Latencies whose ratio is smaller stand so near that their labels would touch.
CLOSE = 1.3

#: An interval is drawn up to this many times the mean.
WIDEST = 3.0

#: Steps of a distribution at most.
MOST_STEPS = 240

Colours = Mapping[str, str]


def choose(report: Report) -> list[Plot]:
    """Return the plots that a report has figures for."""
    timed = comparable([each for each in report.points if "p95_s" in each.figures])
    plots = []
    if len(timed) > 1:
        plots.append(
            Plot(
                "latency",
                "Latency by load",
                f"Percentiles of latency at {len(timed)} loads, from when requests were due",
                partial(_latency, points=timed, knee=report.knee),
            )
        )
        plots.append(
            Plot(
                "throughput",
                "Throughput and goodput",
                "Items answered a second at each load, and those within the objective",
                partial(_throughput, points=timed, most=closed_peak(report.points)),
            )
        )
    if drawn := [each for each in timed if each.runs[0].latencies]:
        plots.append(
            Plot(
                "distribution",
                "Distribution of latency",
                "The share of requests that took at most so long",
                partial(_distribution, points=_thin(drawn, MOST_LINES)),
            )
        )
    if split := [each for each in report.points if _parts(each)]:
        height = min(2.0, 0.4 + 0.1 * len(split))
        plots.append(
            Plot(
                "inside",
                "Where the time went inside the service",
                "Mean time of each part",
                partial(_inside, points=split),
                height,
            )
        )
    if lasting := [each for each in report.points if len(each.runs[0].timeline) > 2]:
        point = comparable(lasting)[-1]
        plots.append(
            Plot(
                "timeline",
                f"Second by second at {plain(point.name)}",
                "Requests sent and ended, and percentiles of latency, over the first run",
                partial(_timeline, point=point),
                1.25,
            )
        )
    if report.beside is not None and report.beside.progress:
        plots.append(
            Plot(
                "beside",
                "A batch beside questions",
                "Items of the batch that were done, and p95 of the questions meanwhile",
                partial(_beside, beside=report.beside),
                1.25,
            )
        )
    return plots


def comparable(points: Sequence[Point]) -> list[Point]:
    """Return the points that one axis can hold, by what they offer: those of a rate, else those with callers."""
    rates = [each for each in points if each.load.rate_per_s is not None]
    return sorted(rates or points, key=offered)


def offered(point: Point) -> float:
    """Return how much a point offers: requests a second, or callers."""
    return point.load.rate_per_s or point.load.concurrency or point.runs[0].generator.achieved_per_s


def closed_peak(points: Sequence[Point]) -> float | None:
    """Return the most items a second of callers in a closed loop; None if there are none, or nothing else."""
    closed = [each for each in points if each.load.kind == "closed" and "items_per_s" in each.figures]
    if len(closed) == len(points):
        return None
    return max((each.figures["items_per_s"].mean for each in closed), default=None)


def _latency(figure: Any, colours: Colours, points: Sequence[Point], knee: Mapping[str, float] | None) -> None:
    axes = figure.subplots()
    rates = [offered(each) for each in points]
    above = 0.0
    for name, (label, colour) in PERCENTILES.items():
        found = [each.figures[name] for each in points]
        _line(axes, rates, found, colours[colour], 1000)
        # A label that would stand on the one above it is moved down.
        shift = -9 if above and above < CLOSE * found[-1].mean else 0
        axes.annotate(label, (rates[-1], 1000 * found[-1].mean), (6, shift), **_beside_point(colours[colour]))
        above = found[-1].mean
    bad = [
        (rate, 1000 * each.figures["p95_s"].mean) for rate, each in zip(rates, points, strict=True) if not each.is_valid
    ]
    if bad:
        axes.scatter(*zip(*bad, strict=True), marker="x", s=46, color=colours["bad"], zorder=5)
        axes.annotate("invalid", bad[0], (-7, 7), **_beside_point(colours["bad"], ha="right"))
    axes.set_yscale("log")
    _ms_axis(axes.yaxis)
    if knee is not None and "rate_per_s" in knee:
        axes.axvline(knee["rate_per_s"], color=colours["warn"], linewidth=1.1, linestyle=(0, (4, 3)), zorder=1)
        axes.annotate(
            f"knee {three(knee['rate_per_s'])}/s",
            (knee["rate_per_s"], 1),
            (-4, -2),
            xycoords=("data", "axes fraction"),
            **_beside_point(colours["warn"], ha="right", va="top"),
        )
    axes.set_ylabel("latency from when due, ms")
    _load_axis(axes, points)


def _throughput(figure: Any, colours: Colours, points: Sequence[Point], most: float | None) -> None:
    axes = figure.subplots()
    rates = [offered(each) for each in points]
    done = [each.figures["items_per_s"] for each in points]
    if all(each.load.rate_per_s for each in points):
        items = [each.runs[0].items / max(1, each.runs[0].requests) for each in points]
        due = [rate * count for rate, count in zip(rates, items, strict=True)]
        axes.plot(rates, due, color=colours["quiet"], linewidth=1, linestyle=(0, (2, 3)))
        axes.annotate("offered", (rates[-1], due[-1]), (6, 2), **_beside_point(colours["quiet"]))
    _line(axes, rates, done, colours["accent"], 1)
    axes.annotate("answered", (rates[-1], done[-1].mean), (6, -5), **_beside_point(colours["accent"]))
    good = [[run.goodput.items_per_s for run in each.runs if run.goodput] for each in points]
    if all(good):
        means = [sum(each) / len(each) for each in good]
        axes.fill_between(rates, means, color=colours["faint"], alpha=0.45, linewidth=0)
        axes.plot(rates, means, color=colours["soft"], linewidth=1.4)
        objective = next(run.goodput.objective for run in points[0].runs if run.goodput)
        axes.annotate(plain(objective), (rates[-1], means[-1]), (6, -10), **_beside_point(colours["soft"]))
    if most is not None:
        axes.axhline(most, color=colours["warn"], linewidth=1.1, linestyle=(0, (4, 3)), zorder=1)
        text = f"most in a closed loop {three(most)}/s"
        axes.annotate(
            text, (0, most), (2, 3), xycoords=("axes fraction", "data"), **_beside_point(colours["warn"], va="bottom")
        )
    axes.set_ylim(bottom=0)
    axes.set_ylabel("items a second")
    _load_axis(axes, points)


def _distribution(figure: Any, colours: Colours, points: Sequence[Point]) -> None:
    axes = figure.subplots()
    for place, point in enumerate(points):
        values = thinned(sorted(1000 * each for run in point.runs for each in run.latencies), MOST_STEPS)
        shares = [100 * (rank + 1) / len(values) for rank in range(len(values))]
        strength = 0.25 + 0.75 * (place + 1) / len(points)
        axes.step(values, shares, where="post", color=colours["accent"], alpha=strength, label=plain(point.name))
    axes.set_xscale("log")
    _ms_axis(axes.xaxis)
    axes.set_ylim(0, 101)
    axes.set_yticks([0, 25, 50, 75, 95], ["0", "25", "50", "75", "95"])
    axes.set_ylabel("% of requests")
    axes.set_xlabel("latency from when due, ms")
    _legend(axes, colours, loc="lower right")


def _inside(figure: Any, colours: Colours, points: Sequence[Point]) -> None:
    axes = figure.subplots()
    rows = [_parts(each) for each in points]
    widest = max(sum(row.values()) for row in rows)
    for place, row in enumerate(rows):
        left = 0.0
        for name, value in row.items():
            axes.barh(
                place, value, 0.62, left, color=colours[f"stage-{name}"], edgecolor=colours["surface"], linewidth=0.6
            )
            left += value
        axes.annotate(three(left), (left, place), (4, 0), **_beside_point(colours["quiet"]))
    names = [name for name in PARTS if any(name in row for row in rows)]
    for name in names:
        axes.barh(0, 0, color=colours[f"stage-{name}"], label=name)
    axes.set_yticks(range(len(points)), [plain(each.name) for each in points])
    axes.set_ylim(len(points) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x")
    axes.set_xlim(0, widest * 1.1)
    axes.set_xlabel("mean, ms")
    figure.legend(loc="outside upper center", ncols=len(names), **_legend_style(colours))


def _timeline(figure: Any, colours: Colours, point: Point) -> None:
    above, below = figure.subplots(2, 1, sharex=True)
    run = point.runs[0]
    rows = run.timeline
    at = [row["at_s"] for row in rows]
    above.plot(at, [row["sent"] for row in rows], color=colours["quiet"], linewidth=1.1, label="sent/s")
    above.plot(at, [row["ended"] for row in rows], color=colours["accent"], label="ended/s")
    above.fill_between(
        at, [row["in_flight"] for row in rows], color=colours["faint"], alpha=0.5, linewidth=0, label="in flight"
    )
    above.set_ylim(bottom=0)
    _legend(above, colours, loc="lower left", ncols=3, bbox_to_anchor=(0, 1))
    _latency_over_time(below, rows, colours)
    for axes in (above, below):
        for start, end in ((0, run.measured_from_s), (run.measured_from_s + run.measured_s, at[-1])):
            if end > start:
                axes.axvspan(start, end, color=colours["line"], alpha=0.35, linewidth=0, zorder=0)
    below.set_xlabel("s since the start; grey parts are not measured")


def _beside(figure: Any, colours: Colours, beside: Beside) -> None:
    above, below = figure.subplots(2, 1, sharex=True)
    at, items = zip(*beside.progress, strict=True)
    above.fill_between(at, items, color=colours["faint"], alpha=0.45, linewidth=0)
    above.plot(at, items, color=colours["accent"])
    above.set_ylabel("items done")
    above.set_ylim(bottom=0)
    above.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    if beside.timeline:
        # The batch's clock starts when it was submitted, that of the questions with the first of them.
        submitted_s = beside.submitted_at_s or 0.0
        rows = [row | {"at_s": row["at_s"] - submitted_s} for row in beside.timeline]
        _latency_over_time(below, rows, colours)
    else:
        spans = {"before": (-0.25, 0.0), "during": (0.0, 1.0), "after": (1.0, 1.25)}
        for name, (start, end) in spans.items():
            p95 = 1000 * getattr(beside, name).p95
            below.hlines(p95, start * beside.makespan_s, end * beside.makespan_s, color=colours["soft"], linewidth=2.4)
            middle = (start + end) / 2 * beside.makespan_s
            below.annotate(
                f"{name} {three(p95)}",
                (middle, p95),
                (0, 4),
                **_beside_point(colours["text"], ha="center", va="bottom"),
            )
        below.set_ylim(0, 1300 * max(getattr(beside, name).p95 for name in spans))
        below.set_ylabel("questions' p95, ms")
    for axes in (above, below):
        axes.axvspan(0, beside.makespan_s, color=colours["line"], alpha=0.35, linewidth=0, zorder=0)
    below.set_xlabel("s since the batch was submitted")


def _latency_over_time(axes: Any, rows: Sequence[Mapping[str, float]], colours: Colours) -> None:
    known = [row for row in rows if "p95_s" in row]
    at = [row["at_s"] for row in known]
    for name, label, colour in (("p95_s", "p95", "accent"), ("p50_s", "p50", "soft")):
        axes.plot(at, [1000 * row[name] for row in known], color=colours[colour], label=label)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("latency, ms")
    _legend(axes, colours, loc="lower left", ncols=2, bbox_to_anchor=(0, 1))


def _line(axes: Any, x: Sequence[float], found: Sequence[Interval], colour: str, scale: float) -> None:
    """Draw means with their intervals, cut at a third and at three times the mean so that lines stay large."""
    means = [scale * each.mean for each in found]
    lows = [max(scale * each.low, mean / WIDEST) for each, mean in zip(found, means, strict=True)]
    highs = [min(scale * each.high, mean * WIDEST) for each, mean in zip(found, means, strict=True)]
    axes.fill_between(x, lows, highs, color=colour, alpha=0.16, linewidth=0)
    axes.plot(x, means, color=colour, marker="o", markersize=3.5)


def _parts(point: Point) -> dict[str, float]:
    """Return the mean of each part of the time inside the service over the runs, in ms."""
    splits = [run.server for run in point.runs if run.server is not None]
    found = {}
    for name in PARTS:
        if values := [spread.mean for each in splits if (spread := part(each, name)) is not None]:
            found[name] = 1000 * sum(values) / len(values)
    return found


def _load_axis(axes: Any, points: Sequence[Point]) -> None:
    kinds = {"closed": "callers"}
    axes.set_xlabel(kinds.get(points[0].load.kind, "requests offered a second"))
    axes.set_xlim(left=0)
    axes.margins(x=0.16)


def _ms_axis(axis: Any) -> None:
    axis.set_major_locator(LogLocator(10, subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axis.set_minor_formatter(NullFormatter())


def _beside_point(colour: str, **fields: Any) -> dict[str, Any]:
    given = {"textcoords": "offset points", "color": colour, "va": "center", "fontsize": 9, "annotation_clip": False}
    return given | fields


def _legend_style(colours: Colours) -> dict[str, Any]:
    return {
        "frameon": False,
        "fontsize": 8.5,
        "labelcolor": colours["quiet"],
        "handlelength": 1.0,
        "handleheight": 0.7,
        "handletextpad": 0.4,
        "columnspacing": 1.0,
        "borderaxespad": 0.2,
    }


def _legend(axes: Any, colours: Colours, **fields: Any) -> None:
    axes.legend(**(_legend_style(colours) | fields))


def _thin(points: Sequence[Point], most: int) -> list[Point]:
    if len(points) <= most:
        return list(points)
    return [points[round(at * (len(points) - 1) / (most - 1))] for at in range(most)]
