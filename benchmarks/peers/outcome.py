"""What was measured of each service, and what follows from it: medians of rounds, and the table. Pure."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

#: The service that the others are compared with.
OURS = "corelane"

#: Callers who each send their next question once the last is answered.
CALLERS = (1, 16, 64)


@dataclass(frozen=True, slots=True)
class Measure:
    """One round with this many callers; ``is_whole`` if each question of the file was asked once."""

    callers: int
    per_s: float
    p95_ms: float
    answered: int
    right: int
    failed: int
    is_whole: bool = False


@dataclass(frozen=True, slots=True)
class Service:
    """A service and what was measured of it."""

    name: str
    title: str
    version: str
    measures: list[Measure] = field(default_factory=list)

    def of(self, callers: int, figure: Callable[[Measure], float]) -> list[float]:
        """Return a figure of each round."""
        return [figure(measure) for measure in self.measures if measure.callers == callers]

    @property
    def exact(self) -> float | None:
        """Right answers in percent, of the whole file where it was asked."""
        return exact_of([measure for measure in self.measures if measure.is_whole] or self.measures)


#: What is compared: its title, how it is read, whether more is better, and how it is shown.
Figure = tuple[str, Callable[[Measure], float], bool, str]
FIGURES: tuple[Figure, ...] = (
    ("questions/s", lambda measure: measure.per_s, True, "{:.1f}"),
    ("p95 latency", lambda measure: measure.p95_ms, False, "{:.0f} ms"),
)


def rotated(names: Sequence[str], round_: int) -> list[str]:
    """Return a round's order: two places further than the last round's, so that each name comes first in some round."""
    by = 2 * round_ % len(names)
    return [*names[by:], *names[:by]]


def exact_of(measures: Iterable[Measure]) -> float | None:
    """Return the share of right answers over some measures, in percent."""
    known = list(measures)
    answered = sum(measure.answered for measure in known)
    return 100 * sum(measure.right for measure in known) / answered if answered else None


def table(services: Sequence[Service]) -> str:
    """Return the comparison as Markdown: medians of rounds, the best of each column in bold."""
    columns = [(callers, figure) for callers in CALLERS for figure in FIGURES]
    heads = [f"{callers} caller{'s' * (callers > 1)}: {title}" for callers, (title, *_) in columns]
    lines = [
        f"| service | version | {' | '.join(heads)} | right answers | failed |",
        "|---|---|" + "---:|" * (len(heads) + 2),
    ]
    best = [_best(services, callers, figure) for callers, figure in columns]
    for service in services:
        cells = [_cell(service, *column, most) for column, most in zip(columns, best, strict=True)]
        exact = "–" if service.exact is None else f"{service.exact:.1f} %"
        failed = sum(measure.failed for measure in service.measures)
        lines.append(f"| {service.title} | {service.version} | {' | '.join(cells)} | {exact} | {failed} |")
    return "\n".join(lines) + "\n"


def _best(services: Sequence[Service], callers: int, figure: Figure) -> float | None:
    """Return the best median of a column."""
    _, read, more_is_better, _ = figure
    values = [median(known) for each in services if (known := each.of(callers, read))]
    return (max if more_is_better else min)(values, default=None)


def _cell(service: Service, callers: int, figure: Figure, best: float | None) -> str:
    """Return the median of a service's rounds, in bold if it is the best."""
    _, read, _, form = figure
    known = service.of(callers, read)
    text = form.format(median(known)) if known else "–"
    return f"**{text}**" if known and median(known) == best else text
