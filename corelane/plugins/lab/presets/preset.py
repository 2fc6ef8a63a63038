"""A preset: a name, and a function that gets a stage and returns the measurements."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from corelane.domain.prices import HostPrice, cost_per_million
from corelane.plugins.lab.load import RunPlan
from corelane.plugins.lab.schema import Beside, Load, LoadPoint, Published
from corelane.plugins.lab.senders import Target
from corelane.plugins.lab.session import Session, ask_idle
from corelane.plugins.lab.synthetic import make_items
from corelane.plugins.lab.workload import Workload

#: A row of a table: cells by column. Columns that no row has are not shown.
Row = Mapping[str, Any]

#: Lengths that fill a bucket of 128 tokens: generated items of 150 estimated tokens have 108 to 126 real tokens.
TOKENS_128 = "tokens=150"

#: Items sent before the measurement, so that every length was met and every connection is open.
WARM_UP = 8


@dataclass(slots=True)
class Stage:
    """The means of a preset to run. ``quick`` asks for a run of seconds; ``show`` shows runs in progress.

    ``serve`` stops the service before, and starts one with some settings and a model that is compiled for one shape.
    """

    target: Target
    cores: int
    quick: bool = False
    seed: int = 0
    repeat: int = 1
    workload: Workload | None = None
    batch_key: str | None = None
    host: HostPrice | None = None
    serve: Callable[[Mapping[str, object], str], Target] = field(kw_only=True)
    show: Callable[[Session], AbstractContextManager[object]] = nullcontext
    say: Callable[[str], object] = print

    def of_length(self, lengths: str, count: int) -> Workload:
        """Return the items that the user named, or generated ones of these lengths."""
        return self.workload or make_items(lengths, count, self.seed, task=self.target.task)

    def session(self, workload: Workload, *, requests: int = 1, target: Target | None = None) -> Session:
        """Return a session with these items, measured from the first request on, and warm the service up."""
        plan = RunPlan(load=closed(1, self.seed), warmup_s=0.0, duration_s=None, requests=requests, tail_s=0.0)
        session = Session(target or self.target, workload, plan, repeat=self.repeat)
        places = workload.distinct(2 if self.quick else WARM_UP, 1)
        ask_idle(session.target, replace(workload, idle={}), plan, places)
        return session

    def cost(self, items_per_s: float) -> str:
        """Return what a million items cost on this host, as a cell of a table; without a price, why it is missing."""
        if not items_per_s:
            return ""
        if self.host is None or self.host.per_hour is None:
            return "CORELANE_INSTANCE is not set"
        return f"{cost_per_million(self.host.per_hour, items_per_s):.3f} {self.host.currency}"


@dataclass(slots=True)
class PresetOutcome:
    """What a preset measured: points of a session, and rows of its own table."""

    session: Session
    points: list[LoadPoint]
    rows: list[Row]
    published: Sequence[Published] = ()
    beside: Beside | None = None
    extra: dict[str, Any] = field(default_factory=dict)
    invalid: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Preset:
    """One experiment. ``own_services``: it starts the services that it measures."""

    name: str
    summary: str
    run: Callable[[Stage], PresetOutcome]
    own_services: bool = False


def closed(callers: int, seed: int) -> Load:
    """Return a closed loop with this number of callers."""
    return Load(kind="closed", concurrency=callers, seed=seed)
