"""Figures as text, the same in every output. Pure."""

from corelane.plugins.lab.schema import Interval

#: Figures by their names in a report, with their names for readers.
NAMES = {
    **{f"{name}_s": name for name in ("p50", "p95", "p99", "mean")},
    "items_per_s": "items/s",
    "exact": "EM",
    "f1": "F1",
    "failed_percent": "failed %",
}

#: Times from this value on are shown in seconds, shorter ones in milliseconds.
LONG_S = 10.0


def three(value: float | None) -> str:
    """Return a number with at least three digits, and only the decimal places that these need."""
    if value is None:
        return "-"
    size = abs(value)
    return f"{value:,.0f}" if size >= 100 else f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def ms_text(seconds: float | None) -> str:
    """Return a time in ms without its unit."""
    return three(None if seconds is None else 1000 * seconds)


def time_text(seconds: float | None) -> str:
    """Return a time in ms, or from 10 s on in seconds."""
    if seconds is None:
        return "-"
    return f"{seconds:,.1f} s" if seconds >= LONG_S else f"{ms_text(seconds)} ms"


def share_text(share: float | None) -> str:
    """Return a share in percent; a share below 1 never reads 100 %."""
    if share is None:
        return "-"
    text = f"{share:.1%}"
    return "99.9%" if text == "100.0%" and share < 1 else "100%" if text == "100.0%" else text


def figure_text(name: str, value: float) -> str:
    """Return a figure by its name in a report."""
    return time_text(value) if name.endswith("_s") and not name.endswith("per_s") else three(value)


def interval_text(figure: Interval | None, scale: float = 1.0) -> str:
    """Return the mean of a figure, and how far its interval reaches if it was repeated."""
    if figure is None:
        return "-"
    reach, mean = figure.high - figure.mean, three(scale * figure.mean)
    if len(figure.values) < 2:
        return mean
    return f"{mean} ±>100%" if reach > abs(figure.mean) else f"{mean} ±{three(scale * reach)}"
