"""Figures as text, the same in the terminal, the page and the Markdown row. Pure."""

from corelane.plugins.lab.schema import Interval

#: Figures by their names in a report, as readers know them.
NAMES = {
    "p50_s": "p50",
    "p95_s": "p95",
    "p99_s": "p99",
    "mean_s": "mean",
    "items_per_s": "items/s",
    "requests_per_s": "requests/s",
    "goodput": "goodput",
    "exact": "EM",
    "f1": "F1",
    "failed_percent": "failed",
}

#: From here on a time is in seconds, below it in milliseconds.
LONG_S = 10.0


def time_text(seconds: float | None) -> str:
    """Return a time in ms, or from 10 s on in seconds."""
    if seconds is None:
        return "-"
    return f"{seconds:,.1f} s" if seconds >= LONG_S else f"{three(1000 * seconds)} ms"


def three(value: float) -> str:
    """Return a number with at least three digits, and no more places than those need."""
    size = abs(value)
    return f"{value:,.0f}" if size >= 100 else f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def ms_text(seconds: float | None) -> str:
    """Return a time in ms without its unit."""
    return "-" if seconds is None else three(1000 * seconds)


def number_text(value: float | None, unit: str = "") -> str:
    """Return a number with at least three digits, and its unit."""
    return "-" if value is None else f"{three(value)}{unit}"


def share_text(share: float | None) -> str:
    """Return a share in percent; one that is not quite all of it never reads 100 %."""
    if share is None:
        return "-"
    text = f"{share:.1%}"
    return "99.9%" if text == "100.0%" and share < 1 else "100%" if text == "100.0%" else text


def change_text(change: float, unit: str) -> str:
    """Return a change with its sign: of a share in percent, else in points."""
    return f"{100 * change:+.1f} %" if unit == "share" else f"{change:+.2f}"


def figure_text(name: str, value: float | None) -> str:
    """Return a figure by its name in a report."""
    if value is None:
        return "-"
    if name.endswith("_s") and not name.endswith("per_s"):
        return time_text(value)
    if name == "goodput":
        return share_text(value)
    return f"{value:.2f} %" if name == "failed_percent" else three(value)


def interval_text(name: str, figure: Interval | None) -> str:
    """Return the mean of a figure and how far its interval reaches, if it was repeated."""
    if figure is None:
        return "-"
    number, _, unit = figure_text(name, figure.mean).partition(" ")
    scale = 1000.0 if unit == "ms" else 100.0 if name == "goodput" else 1.0
    return " ".join(filter(None, (number, reach_text(figure, scale), unit)))


def ms_interval(figure: Interval | None) -> str:
    """Return the mean of a time in ms without its unit, and how far its interval reaches, if it was repeated."""
    return "-" if figure is None else " ".join(filter(None, (ms_text(figure.mean), reach_text(figure, 1000))))


def reach_text(figure: Interval, scale: float = 1.0) -> str:
    """Return how far an interval reaches, in two digits; of one wider than the mean only that it is."""
    reach = figure.high - figure.mean
    if len(figure.values) < 2:
        return ""
    if reach > abs(figure.mean):
        return "±>100%"
    value = scale * reach
    return f"±{value:,.0f}" if value >= 10 else f"±{value:.1f}" if value >= 1 else f"±{value:.2f}"
