"""What sweep and search need of a run: a function that measures the service under one load."""

from typing import Protocol

from corelane.plugins.lab.schema import Load, Point


class Measure(Protocol):
    """Measures one point. Everything but the load is settled: the service, the questions, how they are sent."""

    def __call__(self, name: str, load: Load) -> Point:
        """Run the load for its ``duration_s`` and return what came of it."""


def closed(concurrency: int, duration_s: float, seed: int = 0) -> Load:
    """Return the load of callers who each ask again once they are answered."""
    return Load(kind="closed", concurrency=concurrency, duration_s=duration_s, seed=seed)


def poisson(rate_per_s: float, duration_s: float, seed: int = 0) -> Load:
    """Return the load of callers who know nothing of each other, by requests a second."""
    return Load(kind="poisson", rate_per_s=rate_per_s, duration_s=duration_s, seed=seed)


def mean(point: Point, figure: str) -> float | None:
    """Return a figure of a point over its runs; None if a run has none."""
    found = point.figures.get(figure)
    return None if found is None else found.mean
