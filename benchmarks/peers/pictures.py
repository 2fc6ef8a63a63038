"""The comparison as a picture: questions/s and p95 latency by callers, with the spread of the rounds."""

from collections.abc import Callable
from pathlib import Path

from benchmarks.peers.outcome import QUESTIONS, Measure, Outcome, middle, slowness, speed

#: Colours, Corelane's first.
COLOURS = ("#0b6e4f", "#7a8ba6", "#c08552", "#8d6a9f", "#c25b56", "#a3a380")


def draw(outcome: Outcome, path: Path) -> None:
    """Write the picture as a PNG file."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), dpi=130)
    for axis, title, value, scale in (
        (axes[0], "questions/s (more is better)", speed, 1),
        (axes[1], "p95 latency in ms (less is better)", slowness, 1000),
    ):
        bars(axis, outcome, value, scale)
        axis.set_title(title, fontsize=10)
        axis.set_xticks(range(len(QUESTIONS)), [shape.title for shape in QUESTIONS])
        axis.spines[["top", "right"]].set_visible(False)
    axes[1].set_yscale("log")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=len(labels), fontsize=8, frameon=False)
    versions = f"{outcome.machine.cpu}, {outcome.settings['workers']} cores, {outcome.created_at[:10]}"
    figure.suptitle(f"Extractive question answering, the same model and client; {versions}", fontsize=9)
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    figure.savefig(path)
    plt.close(figure)


def bars(axis: object, outcome: Outcome, value: Callable[[Measure], float | None], scale: int) -> None:
    """Draw a bar a service and shape: the median of the rounds, and a line from the least to the greatest."""
    width = 0.8 / len(outcome.services)
    for place, service in enumerate(outcome.services):
        for index, shape in enumerate(QUESTIONS):
            known = [scale * found for each in service.of(shape.name) if (found := value(each)) is not None]
            at = middle(service.of(shape.name), value)
            if at is None:
                continue
            x = index + (place - (len(outcome.services) - 1) / 2) * width
            error = [[scale * at - min(known)], [max(known) - scale * at]]
            axis.bar(  # type: ignore[attr-defined]
                x,
                scale * at,
                width * 0.92,
                color=COLOURS[place % len(COLOURS)],
                label=service.title if index == 0 else None,
                yerr=error,
                error_kw={"elinewidth": 0.8, "ecolor": "#333333"},
            )
