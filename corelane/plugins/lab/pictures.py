"""The plots of a report as files: PNG, and SVG whose colours are the variables of a page.

matplotlib draws them. It is imported where the first plot is drawn, and is in the extra ``corelane[bench]``.
"""

import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from corelane.errors import SetupError
from corelane.errors.extras import install_command
from corelane.plugins.lab.schema import Report

#: The colours of plots by the name of their variable: a light page's, and a mark that the page's variable replaces.
#: Those of the stages are the console's.
COLOURS = {
    "text": ("#1b2024", "#010101"),
    "quiet": ("#5c666e", "#020202"),
    "line": ("#dfe3e6", "#030303"),
    "surface": ("#ffffff", "#040404"),
    "accent": ("#0f766e", "#050505"),
    "soft": ("#5eb5ad", "#060606"),
    "faint": ("#a9d8d3", "#070707"),
    "warn": ("#a35c00", "#080808"),
    "bad": ("#b91c1c", "#090909"),
    "info": ("#1d5fbf", "#0a0a0a"),
    "stage-submit": ("#64748b", "#0b0b0b"),
    "stage-wait": ("#c3cad1", "#0c0c0c"),
    "stage-tokenize": ("#7c3aed", "#0d0d0d"),
    "stage-compute": ("#0f766e", "#0e0e0e"),
    "stage-merge": ("#1d5fbf", "#0f0f0f"),
    "stage-commit": ("#a35c00", "#101010"),
    "stage-deliver": ("#be185d", "#111111"),
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
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "ytick.left": False,
    "ytick.minor.left": False,
    "grid.linewidth": 0.8,
    "lines.linewidth": 1.8,
    "lines.solid_capstyle": "round",
}

#: Attributes of an SVG that name another element, and what in a style does.
IDS = re.compile(r'((?:\bid|xlink:href|href)="#?|url\(#)([A-Za-z][\w.:-]*)')


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot: its name as a file, its title, what it says to those who do not see it, and how it is drawn."""

    name: str
    title: str
    words: str
    draw: Any
    #: Of the height that a plot has.
    height: float = 1.0


def require_matplotlib() -> None:
    """Raise SetupError naming the extra to install if plots cannot be drawn."""
    if find_spec("matplotlib") is None:
        raise SetupError(f"plots need matplotlib: run `{install_command('bench')}`")


def write_pictures(report: Report, folder: Path) -> list[Path]:
    """Write a PNG for each plot that the report has figures for, and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for plot in plots_of(report):
        path = folder / f"{plot.name}.png"
        path.write_bytes(png(plot))
        paths.append(path)
    return paths


def plots_of(report: Report) -> list[Plot]:
    """Return the plots that a report has figures for."""
    require_matplotlib()
    from corelane.plugins.lab.plots import choose

    return choose(report)


def png(plot: Plot) -> bytes:
    """Return a plot as PNG in the colours of a light page."""
    out = io.BytesIO()
    for figure in _drawn(plot, {name: light for name, (light, _) in COLOURS.items()}):
        figure.savefig(out, format="png", dpi=DPI, metadata={"Software": None})
    return out.getvalue()


def svg(plot: Plot) -> str:
    """Return a plot as an SVG element: ids of its own, no outside names, colours as ``var(--…)``."""
    out = io.StringIO()
    for figure in _drawn(plot, {name: mark for name, (_, mark) in COLOURS.items()}):
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return _for_a_page(out.getvalue(), plot.name)


def _drawn(plot: Plot, colours: Mapping[str, str]) -> Iterator[Any]:
    """Yield the figure with the style in force, which holds while it is saved too."""
    require_matplotlib()
    import matplotlib as mpl
    from matplotlib.figure import Figure

    inks = {
        "text.color": colours["text"],
        "axes.edgecolor": colours["line"],
        "axes.facecolor": "none",
        "axes.labelcolor": colours["quiet"],
        "xtick.color": colours["line"],
        "xtick.labelcolor": colours["quiet"],
        "ytick.labelcolor": colours["quiet"],
        "grid.color": colours["line"],
        "figure.facecolor": colours["surface"],
    }
    with mpl.rc_context(STYLE | inks):
        figure = Figure(figsize=(SIZE_IN[0], SIZE_IN[1] * plot.height), layout="constrained")
        plot.draw(figure, colours)
        yield figure


def _for_a_page(text: str, name: str) -> str:
    """Return the SVG element of a file, as it may stand in a page beside others."""
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    # Its style would hold for the whole page, which has the same for its plots.
    text = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", text, flags=re.DOTALL)
    text = IDS.sub(lambda found: f"{found[1]}{name}-{found[2]}", text)
    for variable, (_, mark) in COLOURS.items():
        text = text.replace(mark, f"var(--{variable})")
    # The page's font, in the size that was drawn.
    text = re.sub(r"(font: [\d.]+px) [^;\"]+", r"\1 var(--sans)", text)
    return re.sub(r"<svg [^>]*?viewBox=\"([^\"]+)\"[^>]*>", r'<svg viewBox="\1" aria-hidden="true">', text, count=1)
