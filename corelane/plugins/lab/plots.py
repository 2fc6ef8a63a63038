"""The plots of a report, as PNG files and as SVG.

matplotlib draws them. It is imported where the first plot is drawn, and is in the extra ``corelane[lab]``.
"""

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from corelane.domain.plain import plain
from corelane.errors import SetupError
from corelane.errors.extras import install_command
from corelane.plugins.lab.schema import Beside, Interval, LoadPoint, Report
from corelane.plugins.lab.stats import thinned
from corelane.plugins.lab.texts import three
from corelane.plugins.lab.view import PARTS, mean, part

#: The colours of plots; those of the stages are the console's.
COLOURS = {
    "text": "#1b2024",
    "quiet": "#5c666e",
    "line": "#dfe3e6",
    "surface": "#ffffff",
    "accent": "#0f766e",
    "soft": "#5eb5ad",
    "faint": "#a9d8d3",
    "warn": "#a35c00",
    "bad": "#b91c1c",
    "info": "#1d5fbf",
    "stage-submit": "#64748b",
    "stage-wait": "#c3cad1",
    "stage-tokenize": "#7c3aed",
    "stage-compute": "#0f766e",
    "stage-merge": "#1d5fbf",
    "stage-commit": "#a35c00",
    "stage-deliver": "#be185d",
}

#: Width and height of a plot in inches. It is small, so that its text can be read on a phone.
SIZE_IN = (4.8, 3.0)

#: Dots of a PNG for each inch.
DPI = 200

STYLE = {
    "font.family": "sans-serif",
    "font.size": 9.5,
    "text.parse_math": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "corelane",
    **{f"axes.spines.{side}": False for side in ("top", "right", "left")},
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    **{f"{name}.labelsize": 9 for name in ("axes", "xtick", "ytick")},
    "ytick.left": False,
    "ytick.minor.left": False,
    "grid.linewidth": 0.8,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
    "text.color": COLOURS["text"],
    "axes.edgecolor": COLOURS["line"],
    "axes.facecolor": "none",
    "axes.labelcolor": COLOURS["quiet"],
    **{f"{name}.color": COLOURS["line"] for name in ("xtick", "grid")},
    **{f"{name}.labelcolor": COLOURS["quiet"] for name in ("xtick", "ytick")},
    "figure.facecolor": COLOURS["surface"],
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "legend.labelcolor": COLOURS["quiet"],
    "legend.handlelength": 1.0,
    "legend.handleheight": 0.7,
    "legend.handletextpad": 0.4,
    "legend.columnspacing": 1.0,
    "legend.borderaxespad": 0.2,
}

#: Where the legend of axes lies: above them.
ABOVE: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1)}


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot: its name as a file, its title, and how it is drawn."""

    name: str
    title: str
    draw: Callable[..., None]
    #: Of the height that a plot has.
    height: float = 1.0


#: Percentiles that are drawn, with their colours.
PERCENTILES = {"p99_s": ("p99", "quiet"), "p95_s": ("p95", "accent"), "p50_s": ("p50", "soft")}

#: Distributions in one plot at most: the first, the last and those between.
MOST_LINES = 6

#: How a bound is drawn.
BOUND: dict[str, Any] = {"linewidth": 1.1, "linestyle": (0, (4, 3)), "zorder": 1}

#: An interval is drawn up to this many times the mean.
WIDEST = 3.0

#: Steps of a distribution at most.
MOST_STEPS = 240


def require_matplotlib() -> None:
    """Raise SetupError naming the extra to install if plots cannot be drawn."""
    if find_spec("matplotlib") is None:
        raise SetupError(f"plots need matplotlib: run `{install_command('lab')}`")


def write_pictures(report: Report, folder: Path) -> list[Path]:
    """Write a PNG for each plot that the report has figures for, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for plot in plots_of(report):
        path = folder / f"{plot.name}.png"
        path.write_bytes(png(plot))
        paths.append(path)
    return paths


def png(plot: Plot) -> bytes:
    """Return a plot as PNG."""
    return _saved(plot, format="png", dpi=DPI, metadata={"Software": None})


def svg(plot: Plot) -> bytes:
    """Return a plot as SVG, the same each time."""
    return _saved(plot, format="svg", metadata={"Date": None, "Creator": None})


def _saved(plot: Plot, **options: Any) -> bytes:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    out = io.BytesIO()
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(SIZE_IN[0], SIZE_IN[1] * plot.height), layout="constrained")
        plot.draw(figure)
        figure.savefig(out, **options)
    return out.getvalue()


def plots_of(report: Report) -> list[Plot]:
    """Return the plots that a report has figures for."""
    require_matplotlib()
    timed = comparable([each for each in report.points if "p95_s" in each.figures])
    drawn = thinned([each for each in timed if each.runs[0].latencies], MOST_LINES)
    split = [each for each in report.points if _parts(each)]
    lasting = comparable([each for each in report.points if len(each.runs[0].timeline) > 2])
    plots = []
    if len(timed) > 1:
        most = closed_peak(report.points)
        plots += [
            Plot("latency", "Latency by load", partial(_latency, points=timed, knee=report.knee)),
            Plot("throughput", "Throughput and goodput", partial(_throughput, points=timed, most=most)),
        ]
    if drawn:
        plots.append(Plot("distribution", "Distribution of latency", partial(_distribution, points=drawn)))
    if split:
        height = min(2.0, 0.4 + 0.1 * len(split))
        plots.append(Plot("inside", "Where the time went inside the service", partial(_inside, points=split), height))
    if lasting:
        title = f"Second by second at {plain(lasting[-1].name)}"
        plots.append(Plot("timeline", title, partial(_timeline, point=lasting[-1]), 1.25))
    if report.beside is not None and report.beside.progress:
        plots.append(Plot("beside", "A batch beside questions", partial(_beside, beside=report.beside), 1.25))
    return plots


def comparable(points: Sequence[LoadPoint]) -> list[LoadPoint]:
    """Return the points that one axis can hold, by what they offer: those of a rate, else those with callers."""
    rates = [each for each in points if each.load.rate_per_s is not None]
    return sorted(rates or points, key=offered)


def offered(point: LoadPoint) -> float:
    """Return how much a point offers: requests a second, or callers."""
    return point.load.rate_per_s or point.load.concurrency or point.runs[0].generator.achieved_per_s


def closed_peak(points: Sequence[LoadPoint]) -> float | None:
    """Return the most items a second of callers in a closed loop; None if there are none, or nothing else."""
    closed = [each for each in points if each.load.kind == "closed" and "items_per_s" in each.figures]
    if len(closed) == len(points):
        return None
    return max((each.figures["items_per_s"].mean for each in closed), default=None)


def _latency(figure: Any, points: Sequence[LoadPoint], knee: Mapping[str, float] | None) -> None:
    axes = figure.subplots()
    rates = [offered(each) for each in points]
    for name, (label, colour) in PERCENTILES.items():
        _line(axes, rates, [each.figures[name] for each in points], COLOURS[colour], 1000, label)
    bad = [(offered(each), 1000 * each.figures["p95_s"].mean) for each in points if not each.is_valid]
    if bad:
        axes.scatter(*zip(*bad, strict=True), marker="x", s=46, color=COLOURS["bad"], zorder=5, label="invalid")
    if knee is not None and "rate_per_s" in knee:
        label = f"knee {three(knee['rate_per_s'])}/s"
        axes.axvline(knee["rate_per_s"], color=COLOURS["warn"], label=label, **BOUND)
    axes.set_yscale("log")
    _ms_axis(axes.yaxis)
    axes.set_ylabel("latency from when due, ms")
    _load_axis(axes, points)
    axes.legend(ncols=4, **ABOVE)


def _throughput(figure: Any, points: Sequence[LoadPoint], most: float | None) -> None:
    axes = figure.subplots()
    rates = [offered(each) for each in points]
    if all(each.load.rate_per_s for each in points):
        due = [offered(each) * each.runs[0].items / max(1, each.runs[0].requests) for each in points]
        axes.plot(rates, due, color=COLOURS["quiet"], linewidth=1, linestyle=(0, (2, 3)), label="offered")
    _line(axes, rates, [each.figures["items_per_s"] for each in points], COLOURS["accent"], 1, "answered")
    good = [mean(run.goodput.items_per_s for run in each.runs if run.goodput) for each in points]
    if None not in good:
        objective = next(run.goodput.objective for run in points[0].runs if run.goodput)
        axes.fill_between(rates, good, color=COLOURS["faint"], alpha=0.45, linewidth=0)
        axes.plot(rates, good, color=COLOURS["soft"], linewidth=1.4, label=plain(objective))
    if most is not None:
        axes.axhline(most, color=COLOURS["warn"], label=f"most in a closed loop {three(most)}/s", **BOUND)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("items a second")
    _load_axis(axes, points)
    axes.legend(ncols=2, **ABOVE)


def _distribution(figure: Any, points: Sequence[LoadPoint]) -> None:
    axes = figure.subplots()
    for place, point in enumerate(points):
        values = thinned(sorted(1000 * each for run in point.runs for each in run.latencies), MOST_STEPS)
        shares = [100 * (rank + 1) / len(values) for rank in range(len(values))]
        strength = 0.25 + 0.75 * (place + 1) / len(points)
        axes.step(values, shares, where="post", color=COLOURS["accent"], alpha=strength, label=plain(point.name))
    axes.set_xscale("log")
    _ms_axis(axes.xaxis)
    axes.set_ylim(0, 101)
    axes.set_yticks([0, 25, 50, 75, 95], ["0", "25", "50", "75", "95"])
    axes.set_ylabel("% of requests")
    axes.set_xlabel("latency from when due, ms")
    axes.legend(loc="lower right")


def _inside(figure: Any, points: Sequence[LoadPoint]) -> None:
    axes = figure.subplots()
    rows = [_parts(each) for each in points]
    widest = max(sum(row.values()) for row in rows)
    for place, row in enumerate(rows):
        left = 0.0
        for name, value in row.items():
            axes.barh(
                place, value, 0.62, left, color=COLOURS[f"stage-{name}"], edgecolor=COLOURS["surface"], linewidth=0.6
            )
            left += value
        axes.annotate(
            three(left), (left, place), (4, 0), textcoords="offset points", va="center", color=COLOURS["quiet"]
        )
    names = [name for name in PARTS if any(name in row for row in rows)]
    for name in names:
        axes.barh(0, 0, color=COLOURS[f"stage-{name}"], label=name)
    axes.set_yticks(range(len(points)), [plain(each.name) for each in points])
    axes.set_ylim(len(points) - 0.4, -0.6)
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x")
    axes.set_xlim(0, widest * 1.1)
    axes.set_xlabel("mean, ms")
    figure.legend(loc="outside upper center", ncols=len(names))


def _timeline(figure: Any, point: LoadPoint) -> None:
    above, below = figure.subplots(2, 1, sharex=True)
    run = point.runs[0]
    rows = run.timeline
    at = [row["at_s"] for row in rows]
    above.plot(at, [row["sent"] for row in rows], color=COLOURS["quiet"], linewidth=1.1, label="sent/s")
    above.plot(at, [row["ended"] for row in rows], color=COLOURS["accent"], label="ended/s")
    above.fill_between(
        at, [row["in_flight"] for row in rows], color=COLOURS["faint"], alpha=0.5, linewidth=0, label="in flight"
    )
    above.set_ylim(bottom=0)
    above.legend(ncols=3, **ABOVE)
    _latency_over_time(below, rows)
    for axes in (above, below):
        for start, end in ((0, run.measured_from_s), (run.measured_from_s + run.measured_s, at[-1])):
            if end > start:
                axes.axvspan(start, end, color=COLOURS["line"], alpha=0.35, linewidth=0, zorder=0)
    below.set_xlabel("s since the start; grey parts are not measured")


def _beside(figure: Any, beside: Beside) -> None:
    above, below = figure.subplots(2, 1, sharex=True)
    at, items = zip(*beside.progress, strict=True)
    above.fill_between(at, items, color=COLOURS["faint"], alpha=0.45, linewidth=0)
    above.plot(at, items, color=COLOURS["accent"])
    above.set_ylabel("items done")
    above.set_ylim(bottom=0)
    above.yaxis.set_major_formatter("{x:,.0f}")
    # The batch's clock starts when it was submitted, that of the questions with the first of them.
    submitted_s = beside.submitted_at_s or 0.0
    _latency_over_time(below, [row | {"at_s": row["at_s"] - submitted_s} for row in beside.timeline])
    for axes in (above, below):
        axes.axvspan(0, beside.makespan_s, color=COLOURS["line"], alpha=0.35, linewidth=0, zorder=0)
    below.set_xlabel("s since the batch was submitted")


def _latency_over_time(axes: Any, rows: Sequence[Mapping[str, float]]) -> None:
    known = [row for row in rows if "p95_s" in row]
    at = [row["at_s"] for row in known]
    for name, label, colour in (("p95_s", "p95", "accent"), ("p50_s", "p50", "soft")):
        axes.plot(at, [1000 * row[name] for row in known], color=COLOURS[colour], label=label)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("latency, ms")
    axes.legend(ncols=2, **ABOVE)


def _line(axes: Any, x: Sequence[float], found: Sequence[Interval], colour: str, scale: float, label: str) -> None:
    """Draw means with their intervals, cut at a third and at three times the mean so that lines stay large."""
    means = [scale * each.mean for each in found]
    lows = [max(scale * each.low, mean / WIDEST) for each, mean in zip(found, means, strict=True)]
    highs = [min(scale * each.high, mean * WIDEST) for each, mean in zip(found, means, strict=True)]
    axes.fill_between(x, lows, highs, color=colour, alpha=0.16, linewidth=0)
    axes.plot(x, means, color=colour, marker="o", markersize=3.5, label=label)


def _parts(point: LoadPoint) -> dict[str, float]:
    """Return the mean of each part of the time inside the service over the runs, in ms."""
    means = {
        name: mean(getattr(part(run.server, name), "mean", None) for run in point.runs if run.server) for name in PARTS
    }
    return {name: 1000 * value for name, value in means.items() if value is not None}


def _load_axis(axes: Any, points: Sequence[LoadPoint]) -> None:
    axes.set_xlabel("callers" if points[0].load.kind == "closed" else "requests offered a second")
    axes.set_xlim(left=0)
    axes.margins(x=0.16)


def _ms_axis(axis: Any) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(10, subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axis.set_minor_formatter(NullFormatter())
