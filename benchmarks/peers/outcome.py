"""What was measured of each service, and what follows from it: medians of rounds, the table, and who is ahead. Pure."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from corelane.plugins.lab.schema import ErrorCount, Machine, Run, Way, Workload

#: Name and version of the results' schema.
SCHEMA = "corelane.peers/1"

#: The service that the others are compared with.
OURS = "corelane"


@dataclass(frozen=True, slots=True)
class Shape:
    """A way to ask: so many callers; each sends its next request once the last is answered."""

    name: str
    title: str
    callers: int
    way: Way = "question"
    items: int = 1


#: Asked of every service.
QUESTIONS = tuple(
    Shape(f"callers-{callers}", f"{callers} caller{'s' * (callers > 1)}", callers) for callers in (1, 16, 64)
)

#: What Corelane has and its peers have not.
BULK = (
    Shape("job", "one job of 256 questions at a time", 1, "job", 256),
    Shape("batch", "one batch file of 256 questions at a time", 1, "batch", 256),
)


class Measure(BaseModel):
    """One shape in one round."""

    shape: str
    round: int
    place: int = Field(description="When it came in its round, from 0.")
    questions_per_s: float
    p50_s: float | None
    p95_s: float | None
    questions: int
    is_whole: bool = Field(False, description="Whether each question of the file was asked, about once.")
    failed: int = Field(description="Requests that were refused, failed or never answered.")
    checked: int = 0
    exact: float | None = Field(None, description="Right answers of those checked, in percent.")
    f1: float | None = None
    client_cpu_share: float = 0.0
    errors: list[ErrorCount] = Field(default_factory=list)
    invalid: list[str] = Field(default_factory=list)


class Service(BaseModel):
    """A service and what was measured of it."""

    name: str
    title: str
    manner: str
    licence: str
    versions: dict[str, str]
    measures: list[Measure] = Field(default_factory=list)

    def of(self, shape: str) -> list[Measure]:
        """Return the measures of one shape."""
        return [measure for measure in self.measures if measure.shape == shape]

    @property
    def failed(self) -> int:
        """All failures."""
        return sum(measure.failed for measure in self.measures)

    @property
    def exact(self) -> float | None:
        """Right answers in percent, of the whole file where it was asked."""
        return mean_exact([measure for measure in self.measures if measure.is_whole] or self.measures)

    @property
    def version(self) -> str:
        """The versions of its own packages."""
        return ", ".join(number for name, number in self.versions.items() if name not in ("python", "torch"))


class Outcome(BaseModel):
    """All of a comparison."""

    schema_: Annotated[str, Field(alias="schema")] = SCHEMA
    created_at: str
    rounds: int
    seconds: float = Field(
        description="Measured part of each shape; the first round's second shape asks each question."
    )
    order: list[list[str]] = Field(description="Services in the order of each round.")
    settings: dict[str, Any]
    machine: Machine
    workload: Workload
    model: dict[str, str]
    services: list[Service]

    model_config = ConfigDict(populate_by_name=True)

    @property
    def ours(self) -> Service | None:
        """Corelane, if it was measured."""
        return next((service for service in self.services if service.name == OURS), None)


def rotated(names: list[str], round_: int) -> list[str]:
    """Return the order of a round: two places further than the round before, so that nobody is always first."""
    by = 2 * round_ % len(names)
    return names[by:] + names[:by]


def measure_of(run: Run, shape: Shape, round_: int, place: int, *, is_whole: bool = False) -> Measure:
    """Return the figures of a run of `corelane bench`."""
    check = run.answers
    return Measure(
        shape=shape.name,
        round=round_,
        place=place,
        questions_per_s=run.items_per_s,
        p50_s=run.latency.p50 if run.latency else None,
        p95_s=run.latency.p95 if run.latency else None,
        questions=run.items,
        is_whole=is_whole,
        failed=run.refused + run.failed + run.unfinished,
        checked=check.checked if check else 0,
        exact=check.exact if check else None,
        f1=check.f1 if check else None,
        client_cpu_share=run.generator.cpu_share,
        errors=run.errors,
        invalid=run.invalid,
    )


def mean_exact(measures: Iterable[Measure]) -> float | None:
    """Return the share of right answers over some measures, in percent."""
    known = [(each.exact, each.checked) for each in measures if each.exact is not None and each.checked]
    checked = sum(count for _, count in known)
    return sum(exact * count for exact, count in known) / checked if checked else None


def middle(measures: Iterable[Measure], figure: Callable[[Measure], float | None]) -> float | None:
    """Return the median of a figure over rounds."""
    values = [value for each in measures if (value := figure(each)) is not None]
    return median(values) if values else None


def speed(measure: Measure) -> float | None:
    """Return the questions answered a second."""
    return measure.questions_per_s


def slowness(measure: Measure) -> float | None:
    """Return the 95th percentile of latency."""
    return measure.p95_s


def ahead(outcome: Outcome) -> list[str]:
    """Return a sentence for each figure in which a peer is ahead of Corelane, or one that says that none is."""
    ours = outcome.ours
    if ours is None or not any(ours.of(shape.name) for shape in QUESTIONS) or len(outcome.services) == 1:
        return []
    found = []
    for shape in QUESTIONS:
        for title, figure, better, shown in (
            ("questions/s", speed, max, "{:.1f}"),
            ("p95 latency", slowness, min, "{:.0f} ms"),
        ):
            scale = 1000 if figure is slowness else 1
            mine = middle(ours.of(shape.name), figure)
            for peer in outcome.services:
                theirs = middle(peer.of(shape.name), figure)
                if peer is ours or mine is None or theirs is None or better(mine, theirs) == mine:
                    continue
                overlap = _overlap(ours.of(shape.name), peer.of(shape.name), figure)
                found.append(
                    f"At {shape.title} **{peer.title}** is ahead of Corelane in {title}: "
                    f"{shown.format(theirs * scale)} against {shown.format(mine * scale)}"
                    + (", within the spread of the rounds." if overlap else ".")
                )
    found += [
        f"**{peer.title}** gave more right answers: {peer.exact:.1f} % against {ours.exact:.1f} %."
        for peer in outcome.services
        if peer is not ours and peer.exact is not None and ours.exact is not None and peer.exact > ours.exact
    ]
    return found or ["No peer is ahead of Corelane in any of these figures."]


def _overlap(one: list[Measure], other: list[Measure], figure: Callable[[Measure], float | None]) -> bool:
    """Return whether the values of two services' rounds overlap."""
    first, second = ([value for each in part if (value := figure(each)) is not None] for part in (one, other))
    return bool(first and second) and min(first) <= max(second) and min(second) <= max(first)


def table(outcome: Outcome) -> str:
    """Return the comparison as Markdown: medians of rounds, the best of each column in bold, and who is ahead."""
    titles = [title for shape in QUESTIONS for title in (f"{shape.title}: questions/s", "p95")]
    lines = [
        "| service | version | " + " | ".join(titles) + " | right answers | failed |",
        "|---|---|" + "---:|" * (len(titles) + 2),
    ]
    best = {
        (shape.name, figure): choose(values)
        for shape in QUESTIONS
        for figure, choose in ((speed, max), (slowness, min))
        if (values := [v for each in outcome.services if (v := middle(each.of(shape.name), figure)) is not None])
    }
    for service in outcome.services:
        cells = []
        for shape in QUESTIONS:
            for figure in (speed, slowness):
                value = middle(service.of(shape.name), figure)
                text = "–" if value is None else f"{value:.1f}" if figure is speed else f"{1000 * value:.0f} ms"
                cells.append(f"**{text}**" if value is not None and value == best[shape.name, figure] else text)
        exact = "–" if service.exact is None else f"{service.exact:.1f} %"
        lines.append(f"| {service.title} | {service.version} | {' | '.join(cells)} | {exact} | {service.failed} |")
    return "\n".join([*lines, "", *bulk_lines(outcome), *(f"- {sentence}" for sentence in ahead(outcome))]) + "\n"


def bulk_lines(outcome: Outcome) -> list[str]:
    """Return what Corelane does with many questions at once."""
    ours = outcome.ours
    speeds = [(shape, middle(ours.of(shape.name), speed)) for shape in BULK] if ours else []
    return [f"- Corelane, {shape.title}: {value:.1f} questions/s." for shape, value in speeds if value is not None]


def document(outcome: Outcome) -> str:
    """Return the whole comparison as a Markdown page."""
    machine, settings = outcome.machine, outcome.settings
    manners = [f"| {each.title} | {each.manner} | {each.licence} |" for each in outcome.services]
    head = (
        f"{outcome.rounds} round{'s' * (outcome.rounds > 1)} of {outcome.seconds:g} s a shape on "
        f"{outcome.created_at[:10]}: {machine.cpu}, "
        f"{settings['workers']} cores, Python {machine.python}, kernel {machine.kernel}; {outcome.model['version']} in "
        f"{outcome.model['dtype']}; {outcome.workload.questions} questions of {outcome.workload.source} "
        f"({outcome.workload.hash}). Batches of up to {settings['batch']}, filled for up to {settings['wait_ms']} ms, "
        f"one thread a process. Medians of the rounds; right answers are exact matches."
    )
    manner_table = ["| service | manner | licence |", "|---|---|---|", *manners]
    return "\n".join(
        ["# Corelane beside its peers", "", head, "", table(outcome), *manner_table, "", "![speed](peers.png)", ""]
    )
