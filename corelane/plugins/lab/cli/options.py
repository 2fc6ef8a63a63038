"""The options of a bench run: which service, which items, which load, and how it is sent.

``bench`` and its experiments share these options. Each group of options becomes plain data.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from corelane.cli.commands import Made
from corelane.cli.service import KeyOption, UrlOption
from corelane.errors import InvalidInput

if TYPE_CHECKING:
    from corelane.plugins.lab.load import RunPlan
    from corelane.plugins.lab.schema import Load, Way
    from corelane.plugins.lab.senders import Target
    from corelane.plugins.lab.workload import Workload

#: Lengths of generated items if the user gives none.
SYNTHETIC = "words=lognormal(120,0.6)"

#: Seconds of measurement if nothing else gives a time.
DURATION_S = 30.0

#: These make an option that the help shows in the named panel.
of_items = partial(typer.Option, rich_help_panel="Items")
of_load = partial(typer.Option, rich_help_panel="Load")
of_sending = partial(typer.Option, rich_help_panel="Sending")


@dataclass(frozen=True, slots=True)
class Where:
    """The service that is measured; with ``serve`` one is started for the run."""

    url: UrlOption = None
    api_key: KeyOption = None
    model: Annotated[str, typer.Option(help="A model version, name or alias.")] = "default"
    serve: Annotated[bool, typer.Option("--serve", help="Start a service for the run, on all cores.")] = False

    @contextmanager
    def service(self) -> "Iterator[Target]":
        """Yield the service, with the secret that signs its webhooks."""
        from corelane.client import local_url
        from corelane.plugins.lab.senders import Target
        from corelane.settings import read_settings

        settings = read_settings()
        secret = settings.webhook_secret.get_secret_value() if settings.webhook_secret is not None else None
        if not self.serve:
            key = settings.api_key.get_secret_value() if settings.api_key is not None else None
            url = self.url or settings.url or local_url(settings.host, settings.port)
            yield Target(url, self.api_key or key, self.model, webhook_secret=secret)
            return
        if self.url is not None:
            raise InvalidInput("--serve starts a service: leave --url out")
        from corelane.cli.local import running_service
        from corelane.domain.webhook_secrets import new_secret

        secret = secret or new_secret()
        own = {"webhook_secret": secret, "webhook_allowed_networks": ("127.0.0.0/8",), "log_level": "warning"}
        with running_service(settings.data_dir, **own) as url:
            yield Target(url, None, self.model, webhook_secret=secret)


@dataclass(frozen=True, slots=True)
class What:
    """The items."""

    source: Annotated[
        Path | None,
        of_items("--file", "--questions", metavar="FILE", help="Lines of JSON, or the task's own layout, as SQuAD's."),
    ] = None
    synthetic: Annotated[
        str | None,
        of_items(
            metavar="LENGTHS",
            help=f"Make items of these lengths, {SYNTHETIC} if there is no file; of a file's sentences if there is "
            "one. Also uniform(50,400), normal(120,30), words=120, tokens=128.",
        ),
    ] = None
    limit: Annotated[int | None, of_items(min=1, help="Use or make this many items.")] = None
    task: Annotated[str | None, of_items(help="Their task; that of the model if not given.")] = None

    def task_of(self, target: "Target", sender: str | None = None) -> str:
        """Return the task of the items; raise an error of the service if it does not say its model's."""
        from corelane.domain.jobs import DEFAULT_TASK
        from corelane.plugins.lab.machine import task_of

        return self.task or (task_of(target) if sender is None else DEFAULT_TASK)

    def read(self, seed: int, task: str) -> "Workload":
        """Read or generate the items."""
        from corelane.plugins.lab.synthetic import COUNT, make_items
        from corelane.plugins.lab.workload import read_file

        file = self.source
        if file is not None and self.synthetic is None:
            return read_file(file, self.limit, seed, task)
        texts = [text for _, text in read_file(file, task=task).parts()] if file is not None else []
        return make_items(self.synthetic or SYNTHETIC, self.limit or COUNT, seed, texts, task)

    def read_given(self, seed: int, task: str) -> "Workload | None":
        """Read or generate the items that the command line names; None if it names none."""
        return self.read(seed, task) if self.source is not None or self.synthetic is not None else None


@dataclass(frozen=True)
class OfferedLoad:
    """The load. Raises InvalidInput if options exclude each other or cannot be read."""

    rate: Annotated[float | None, of_load(help="Requests a second; a modest rate if not given.")] = None
    arrivals: Annotated[str, of_load(metavar="KIND", help="constant, poisson, or gamma:CV, which comes in bursts.")] = (
        "poisson"
    )
    ramp: Annotated[str | None, of_load(metavar="A..B", help="A rate that grows, as 5..50.")] = None
    stages: Annotated[str | None, of_load(metavar="STAGES", help="Rates in turn, as 10@60s,50@60s.")] = None
    trace: Annotated[Path | None, of_load(metavar="FILE", help='Lines such as {"at_s": 0.5, "items": 1}.')] = None
    speed: Annotated[float, of_load(min=0.001, help="How much faster a trace is replayed.")] = 1.0
    concurrency: Annotated[
        int | None, of_load(min=1, help="A closed loop: so many callers; each asks once answered.")
    ] = None
    duration: Annotated[
        float | None, of_load(min=0.1, help="Seconds measured; 30, or as --requests, --stages say.")
    ] = None
    requests: Annotated[int | None, of_load(min=1, help="Requests measured, in place of a time.")] = None
    warmup: Annotated[float, of_load(min=0, help="Seconds of load before, not counted.")] = 5.0
    tail: Annotated[float, of_load(min=0, help="Most seconds of load after, for what was measured to end.")] = 10.0
    repeat: Annotated[int, of_load(min=1, help="Times, for an interval.")] = 1
    seed: Annotated[int, of_load(help="Of arrivals and items.")] = 0

    def __post_init__(self) -> None:
        stating = ("rate", "ramp", "stages", "trace", "concurrency")
        given = [f"--{name}" for name in stating if getattr(self, name) is not None]
        if len(given) > 1:
            raise InvalidInput(f"{' and '.join(given)} exclude each other: each states the whole load")
        _ = self.burstiness, self.load

    @cached_property
    def burstiness(self) -> float:
        """The coefficient of variation of the gaps."""
        from corelane.plugins.lab.load import read_burstiness

        return read_burstiness(self.arrivals)

    @cached_property
    def load(self) -> "Load | None":
        """The load, or None if none was given, so that a modest one is chosen."""
        from corelane.plugins.lab import load as loads
        from corelane.plugins.lab.schema import Load

        if self.rate is not None:
            return self.steady(self.rate)
        if self.ramp is not None:
            return loads.ramp_load(self.ramp, self.duration or DURATION_S, self.burstiness, self.seed)
        if self.stages is not None:
            return loads.stages_load(self.stages, self.burstiness, self.seed)
        if self.trace is not None:
            return loads.trace_load(self.trace, self.speed)
        if self.concurrency is not None:
            return Load(kind="closed", concurrency=self.concurrency, seed=self.seed)
        return None

    @property
    def duration_s(self) -> float | None:
        """Seconds of measurement; None if something else gives the time."""
        has_end = self.requests is not None or self.stages is not None or self.trace is not None
        return self.duration if self.duration is not None or has_end else DURATION_S

    def steady(self, rate_per_s: float) -> "Load":
        """Return the load of one rate."""
        from corelane.plugins.lab.load import steady_load

        return steady_load(rate_per_s, self.burstiness, self.seed)

    def plan(self, sending: "Sending", load: "Load") -> "RunPlan":
        """Return the plan of a run whose requests are sent as ``sending`` says."""
        from corelane.plugins.lab.load import CORELANE_SENDER, RunPlan

        way: Way = "item" if sending.way == "question" else sending.way
        return RunPlan(
            load=load,
            way=way,
            hearing=sending.hearing or ("poll" if way == "batch" else "wait"),
            items_per_job=1 if way == "item" else sending.items_per_job,
            warmup_s=self.warmup,
            duration_s=self.duration_s,
            requests=self.requests,
            tail_s=self.tail,
            processes=sending.processes,
            timeout_s=sending.timeout,
            sender=sending.sender or CORELANE_SENDER,
            max_in_flight=sending.max_in_flight,
            poll_s=sending.poll,
            retries_refusals=sending.on_refusal == "retry",
        )


@dataclass(frozen=True, slots=True)
class Sending:
    """How requests are sent."""

    way: Annotated[
        Literal["item", "question", "job", "lines", "batch"],
        of_sending(help="What a request is; `question` is an older name of `item`."),
    ] = "item"
    hearing: Annotated[
        Literal["wait", "poll", "sse", "webhook"] | None,
        of_sending(help="How its end is heard: wait, and poll for a batch."),
    ] = None
    items_per_job: Annotated[int, of_sending(min=1, help="Items of a job, of lines or of a batch.")] = 32
    poll: Annotated[float, of_sending(min=0.001, help="Seconds between two polls.")] = 0.05
    on_refusal: Annotated[
        Literal["count", "retry"], of_sending(help="Count a 429, or retry after the time it asks for.")
    ] = "count"
    timeout: Annotated[float, of_sending(min=0.1, help="Seconds after which a request is given up.")] = 60.0
    processes: Annotated[int, of_sending(min=0, help="Processes that send; chosen by the load if 0.")] = 0
    max_in_flight: Annotated[
        int | None, of_sending(min=1, help="A client with a bound: requests beyond wait for a place.")
    ] = None
    sender: Annotated[str | None, of_sending(metavar="MODULE:CLASS", help="Another sender.")] = None


WhereOptions = Annotated[Where, Made(Where)]
WhatOptions = Annotated[What, Made(What)]
LoadOptions = Annotated[OfferedLoad, Made(OfferedLoad)]
SendingOptions = Annotated[Sending, Made(Sending)]
