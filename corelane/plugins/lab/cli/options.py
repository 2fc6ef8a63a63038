"""What a bench run is asked for on the command line: which service, which questions, which load, and how it is sent.

``bench`` and its experiments share these options. Each group of them becomes plain data.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from corelane.cli.commands import Made
from corelane.cli.service import KeyOption, UrlOption
from corelane.errors import InvalidInput

if TYPE_CHECKING:
    from corelane.plugins.lab.load import RunPlan
    from corelane.plugins.lab.schema import Load
    from corelane.plugins.lab.workload import Questions

#: Lengths of the questions that are made where none are given.
SYNTHETIC = "words=lognormal(120,0.6)"

#: Seconds measured where nothing says how long.
DURATION_S = 30.0

#: An option of a panel of the help.
of_questions = partial(typer.Option, rich_help_panel="Questions")
of_load = partial(typer.Option, rich_help_panel="Load")
of_sending = partial(typer.Option, rich_help_panel="Sending")


class WayChoice(StrEnum):
    """How requests are submitted."""

    QUESTION = "question"
    JOB = "job"
    LINES = "lines"
    BATCH = "batch"


class HearingChoice(StrEnum):
    """How the end of a request is heard."""

    WAIT = "wait"
    POLL = "poll"
    SSE = "sse"
    WEBHOOK = "webhook"


class OnRefusal(StrEnum):
    """What follows where the service has too much to do."""

    COUNT = "count"
    RETRY = "retry"


@dataclass(frozen=True, slots=True)
class Where:
    """The service that is measured; with ``serve`` one is started for the run."""

    url: str | None
    api_key: str | None
    model: str
    serve: bool

    @contextmanager
    def service(self, **changes: object) -> Iterator[tuple[str, str | None, str | None]]:
        """Yield the service's address, the key for it, and what its webhooks are signed with."""
        from corelane.client import local_url
        from corelane.settings import read_settings

        settings = read_settings()
        secret = settings.webhook_secret.get_secret_value() if settings.webhook_secret is not None else None
        if not self.serve:
            key = settings.api_key.get_secret_value() if settings.api_key is not None else None
            yield self.url or settings.url or local_url(settings.host, settings.port), self.api_key or key, secret
            return
        if self.url is not None:
            raise InvalidInput("--serve starts a service: leave --url out")
        from corelane.cli.local import running_service
        from corelane.domain.webhook_secrets import new_secret

        secret = secret or new_secret()
        own = {"webhook_secret": secret, "webhook_allowed_networks": ("127.0.0.0/8",), "log_level": "warning"}
        with running_service(settings.data_dir, **own | changes) as url:
            yield url, None, secret


@dataclass(frozen=True, slots=True)
class What:
    """The questions."""

    file: Path | None
    synthetic: str | None
    limit: int | None

    def read(self, seed: int) -> "Questions":
        """Read or make them."""
        from corelane.plugins.lab.synthetic import COUNT, make_questions
        from corelane.plugins.lab.workload import read_file

        if self.file is not None and self.synthetic is None:
            return read_file(self.file, self.limit, seed)
        passages = [each.context for each in read_file(self.file).asked] if self.file is not None else []
        return make_questions(self.synthetic or SYNTHETIC, self.limit or COUNT, seed, passages)


@dataclass(frozen=True, slots=True)
class OfferedLoad:
    """The load. It is None where none was asked for, so that a modest one is chosen."""

    load: "Load | None"
    burstiness: float
    warmup_s: float
    duration_s: float | None
    requests: int | None
    tail_s: float
    repeat: int
    seed: int

    def steady(self, rate_per_s: float) -> "Load":
        """Return the load of one rate."""
        from corelane.plugins.lab.load import steady_load

        return steady_load(rate_per_s, self.burstiness, self.seed)

    def plan(self, sending: "RunPlan", load: "Load") -> "RunPlan":
        """Return the plan of a run whose requests are sent as ``sending`` says."""
        return replace(
            sending,
            load=load,
            warmup_s=self.warmup_s,
            duration_s=self.duration_s,
            requests=self.requests,
            tail_s=self.tail_s,
            seed=self.seed,
        )


def where_options(
    url: UrlOption = None,
    api_key: KeyOption = None,
    model: Annotated[str, typer.Option(help="A model version, name or alias.")] = "default",
    serve: Annotated[bool, typer.Option("--serve", help="Start a service for the run, on all cores.")] = False,
) -> Where:
    """Return which service is measured."""
    return Where(url, api_key, model, serve)


def what_options(
    questions: Annotated[Path | None, of_questions(metavar="FILE", help="In SQuAD's layout, or lines of JSON.")] = None,
    synthetic: Annotated[
        str | None,
        of_questions(
            metavar="LENGTHS",
            help=f"Make questions of these lengths, {SYNTHETIC} if there is no file; of a file's sentences if there is "
            "one. Also uniform(50,400), normal(120,30), words=120, tokens=128.",
        ),
    ] = None,
    limit: Annotated[int | None, of_questions(min=1, help="Use, or make, so many questions.")] = None,
) -> What:
    """Return which questions are asked."""
    return What(questions, synthetic, limit)


def load_options(
    rate: Annotated[float | None, of_load(help="Requests a second; a modest rate if not given.")] = None,
    arrivals: Annotated[
        str, of_load(metavar="KIND", help="constant, poisson, or gamma:CV, which comes in bursts.")
    ] = "poisson",
    ramp: Annotated[str | None, of_load(metavar="A..B", help="A rate that grows, as 5..50.")] = None,
    stages: Annotated[str | None, of_load(metavar="STAGES", help="Rates in turn, as 10@60s,50@60s.")] = None,
    trace: Annotated[Path | None, of_load(metavar="FILE", help='Lines such as {"at_s": 0.5, "items": 1}.')] = None,
    speed: Annotated[float, of_load(min=0.001, help="How much faster a trace is replayed.")] = 1.0,
    concurrency: Annotated[
        int | None, of_load(min=1, help="A closed loop: so many callers; each asks once answered.")
    ] = None,
    duration: Annotated[
        float | None, of_load(min=0.1, help="Seconds measured; 30, or as --requests, --stages say.")
    ] = None,
    requests: Annotated[int | None, of_load(min=1, help="Requests measured, in place of a time.")] = None,
    warmup: Annotated[float, of_load(min=0, help="Seconds of load before, not counted.")] = 5.0,
    tail: Annotated[float, of_load(min=0, help="Most seconds of load after, for what was measured to end.")] = 10.0,
    repeat: Annotated[int, of_load(min=1, help="Times, for an interval.")] = 1,
    seed: Annotated[int, of_load(help="Of arrivals and questions.")] = 0,
) -> OfferedLoad:
    """Return the load; raise InvalidInput where options exclude each other or cannot be read."""
    from corelane.plugins.lab import load as loads
    from corelane.plugins.lab.schema import Load

    asked = {"--rate": rate, "--ramp": ramp, "--stages": stages, "--trace": trace, "--concurrency": concurrency}
    given = [name for name, value in asked.items() if value is not None]
    if len(given) > 1:
        raise InvalidInput(f"{' and '.join(given)} exclude each other: each states the whole load")
    burstiness = loads.read_burstiness(arrivals)
    load: Load | None = None
    if rate is not None:
        load = loads.steady_load(rate, burstiness, seed)
    elif ramp is not None:
        load = loads.ramp_load(ramp, duration or DURATION_S, burstiness, seed)
    elif stages is not None:
        load = loads.stages_load(stages, burstiness, seed)
    elif trace is not None:
        load = loads.trace_load(trace, speed)
    elif concurrency is not None:
        load = Load(kind="closed", concurrency=concurrency, seed=seed)
    has_end = requests is not None or stages is not None or trace is not None
    duration_s = duration if duration is not None or has_end else DURATION_S
    return OfferedLoad(load, burstiness, warmup, duration_s, requests, tail, repeat, seed)


def sending_options(
    way: Annotated[WayChoice, of_sending(help="What a request is.")] = WayChoice.QUESTION,
    hearing: Annotated[
        HearingChoice | None, of_sending(help="How its end is heard: wait, and poll for a batch.")
    ] = None,
    items_per_job: Annotated[int, of_sending(min=1, help="Questions of a job, of lines or of a batch.")] = 32,
    poll: Annotated[float, of_sending(min=0.001, help="Seconds between two polls.")] = 0.05,
    on_refusal: Annotated[
        OnRefusal, of_sending(help="Count a 429, or retry after the time it asks for.")
    ] = OnRefusal.COUNT,
    timeout: Annotated[float, of_sending(min=0.1, help="Seconds after which a request is given up.")] = 60.0,
    processes: Annotated[int, of_sending(min=0, help="Processes that send; chosen by the load if 0.")] = 0,
    max_in_flight: Annotated[
        int | None, of_sending(min=1, help="A client with a bound: requests beyond wait for a place.")
    ] = None,
    sender: Annotated[str | None, of_sending(metavar="MODULE:CLASS", help="Another sender.")] = None,
) -> "RunPlan":
    """Return the plan of how requests are sent; its load is still to come."""
    from corelane.plugins.lab.load import CORELANE_SENDER, RunPlan
    from corelane.plugins.lab.schema import Load

    usual = HearingChoice.POLL if way is WayChoice.BATCH else HearingChoice.WAIT
    return RunPlan(
        load=Load(kind="closed", concurrency=1),
        way=way.value,
        hearing=(hearing or usual).value,
        items_per_job=1 if way is WayChoice.QUESTION else items_per_job,
        processes=processes,
        timeout_s=timeout,
        sender=sender or CORELANE_SENDER,
        max_in_flight=max_in_flight,
        poll_s=poll,
        retries_refusals=on_refusal is OnRefusal.RETRY,
    )


WhereOptions = Annotated[Where, Made(where_options)]
WhatOptions = Annotated[What, Made(what_options)]
LoadOptions = Annotated[OfferedLoad, Made(load_options)]
SendingOptions = Annotated["RunPlan", Made(sending_options)]
