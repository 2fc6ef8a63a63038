"""What a bench run is asked for on the command line: which service, which questions, which load, and how it is sent.

``bench`` and its experiments share these options. Each group of them becomes plain data.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from corelane.cli.commands import Made
from corelane.cli.service import KeyOption, UrlOption
from corelane.errors import InvalidInput

if TYPE_CHECKING:
    from corelane.plugins.lab.generator import Plan
    from corelane.plugins.lab.schema import Load
    from corelane.plugins.lab.workload import Questions

#: Lengths of the questions that are made where none are given.
SYNTHETIC = "words=lognormal(120,0.6)"

#: Seconds measured where nothing says how long.
DURATION_S = 30.0

QUESTIONS, LOAD, SENDING = "Questions", "Load", "Sending"


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


class Refusal(StrEnum):
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
class Offered:
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
        return steady_load(rate_per_s, self.burstiness, self.seed)


@dataclass(frozen=True, slots=True)
class Sending:
    """How requests are sent, and their ends are heard."""

    way: WayChoice
    hearing: HearingChoice
    items_per_job: int
    poll_s: float
    retries_refusals: bool
    timeout_s: float
    processes: int
    max_in_flight: int | None
    sender: str

    def plan(self, offered: Offered, load: "Load") -> "Plan":
        """Return the plan of a run."""
        from corelane.plugins.lab.plan import Plan

        return Plan(
            load=load,
            way=self.way.value,
            hearing=self.hearing.value,
            items_per_job=self.items_per_job,
            warmup_s=offered.warmup_s,
            duration_s=offered.duration_s,
            requests=offered.requests,
            tail_s=offered.tail_s,
            processes=self.processes,
            timeout_s=self.timeout_s,
            seed=offered.seed,
            sender=self.sender,
            max_in_flight=self.max_in_flight,
            poll_s=self.poll_s,
            retries_refusals=self.retries_refusals,
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
    questions: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="In SQuAD's layout, or lines of JSON.", rich_help_panel=QUESTIONS),
    ] = None,
    synthetic: Annotated[
        str | None,
        typer.Option(
            metavar="LENGTHS",
            help=f"Make questions of these lengths, {SYNTHETIC} if there is no file; of a file's sentences if there is "
            "one. Also uniform(50,400), normal(120,30), words=120, tokens=128.",
            rich_help_panel=QUESTIONS,
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Use, or make, so many questions.", rich_help_panel=QUESTIONS)
    ] = None,
) -> What:
    """Return which questions are asked."""
    return What(questions, synthetic, limit)


def load_options(
    rate: Annotated[
        float | None, typer.Option(help="Requests a second; a modest rate if not given.", rich_help_panel=LOAD)
    ] = None,
    arrivals: Annotated[
        str,
        typer.Option(
            metavar="KIND", help="constant, poisson, or gamma:CV, which comes in bursts.", rich_help_panel=LOAD
        ),
    ] = "poisson",
    ramp: Annotated[
        str | None, typer.Option(metavar="A..B", help="A rate that grows, as 5..50.", rich_help_panel=LOAD)
    ] = None,
    stages: Annotated[
        str | None, typer.Option(metavar="STAGES", help="Rates in turn, as 10@60s,50@60s.", rich_help_panel=LOAD)
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help='Lines such as {"at_s": 0.5, "items": 1}.', rich_help_panel=LOAD),
    ] = None,
    speed: Annotated[
        float, typer.Option(min=0.001, help="How much faster a trace is replayed.", rich_help_panel=LOAD)
    ] = 1.0,
    concurrency: Annotated[
        int | None,
        typer.Option(min=1, help="A closed loop: so many callers; each asks once answered.", rich_help_panel=LOAD),
    ] = None,
    duration: Annotated[
        float | None,
        typer.Option(min=0.1, help="Seconds measured; 30, or as --requests, --stages say.", rich_help_panel=LOAD),
    ] = None,
    requests: Annotated[
        int | None, typer.Option(min=1, help="Requests measured, in place of a time.", rich_help_panel=LOAD)
    ] = None,
    warmup: Annotated[
        float, typer.Option(min=0, help="Seconds of load before, not counted.", rich_help_panel=LOAD)
    ] = 5.0,
    tail: Annotated[
        float,
        typer.Option(min=0, help="Most seconds of load after, for what was measured to end.", rich_help_panel=LOAD),
    ] = 10.0,
    repeat: Annotated[int, typer.Option(min=1, help="Times, for an interval.", rich_help_panel=LOAD)] = 1,
    seed: Annotated[int, typer.Option(help="Of arrivals and questions.", rich_help_panel=LOAD)] = 0,
) -> Offered:
    """Return the load; raise InvalidInput where options exclude each other or cannot be read."""
    asked = {"--rate": rate, "--ramp": ramp, "--stages": stages, "--trace": trace, "--concurrency": concurrency}
    given = [name for name, value in asked.items() if value is not None]
    if len(given) > 1:
        raise InvalidInput(f"{' and '.join(given)} exclude each other: each states the whole load")
    burstiness = read_burstiness(arrivals)
    load: Load | None = None
    if rate is not None:
        load = steady_load(rate, burstiness, seed)
    elif ramp is not None:
        load = ramp_load(ramp, duration or DURATION_S, burstiness, seed)
    elif stages is not None:
        load = stages_load(stages, burstiness, seed)
    elif trace is not None:
        load = trace_load(trace, speed)
    elif concurrency is not None:
        load = closed_load(concurrency, seed)
    has_end = requests is not None or stages is not None or trace is not None
    duration_s = duration if duration is not None or has_end else DURATION_S
    return Offered(load, burstiness, warmup, duration_s, requests, tail, repeat, seed)


def sending_options(
    way: Annotated[WayChoice, typer.Option(help="What a request is.", rich_help_panel=SENDING)] = WayChoice.QUESTION,
    hearing: Annotated[
        HearingChoice | None,
        typer.Option(help="How its end is heard: wait, and poll for a batch.", rich_help_panel=SENDING),
    ] = None,
    items_per_job: Annotated[
        int, typer.Option(min=1, help="Questions of a job, of lines or of a batch.", rich_help_panel=SENDING)
    ] = 32,
    poll: Annotated[float, typer.Option(min=0.001, help="Seconds between two polls.", rich_help_panel=SENDING)] = 0.05,
    on_refusal: Annotated[
        Refusal, typer.Option(help="Count a 429, or retry after the time it asks for.", rich_help_panel=SENDING)
    ] = Refusal.COUNT,
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds after which a request is given up.", rich_help_panel=SENDING)
    ] = 60.0,
    processes: Annotated[
        int, typer.Option(min=0, help="Processes that send; chosen by the load if 0.", rich_help_panel=SENDING)
    ] = 0,
    max_in_flight: Annotated[
        int | None,
        typer.Option(min=1, help="A client with a bound: requests beyond wait for a place.", rich_help_panel=SENDING),
    ] = None,
    sender: Annotated[
        str | None, typer.Option(metavar="MODULE:CLASS", help="Another sender.", rich_help_panel=SENDING)
    ] = None,
) -> Sending:
    """Return how requests are sent."""
    from corelane.plugins.lab.plan import CORELANE_SENDER

    usual = HearingChoice.POLL if way is WayChoice.BATCH else HearingChoice.WAIT
    return Sending(
        way,
        hearing or usual,
        1 if way is WayChoice.QUESTION else items_per_job,
        poll,
        on_refusal is Refusal.RETRY,
        timeout,
        processes,
        max_in_flight,
        sender or CORELANE_SENDER,
    )


def read_burstiness(arrivals: str) -> float:
    """Return the coefficient of variation of gaps that a kind of arrivals has; raise InvalidInput."""
    kind, _, value = arrivals.partition(":")
    try:
        return {"constant": 0.0, "poisson": 1.0}[kind] if not value else {"gamma": float(value)}[kind]
    except (KeyError, ValueError):
        raise InvalidInput(f"--arrivals {arrivals}: write constant, poisson or gamma:CV, as gamma:3") from None


def steady_load(rate_per_s: float, burstiness: float, seed: int) -> "Load":
    """Return the load of one rate; raise InvalidInput for an impossible one."""
    from corelane.domain.arrivals import steady
    from corelane.plugins.lab.schema import Load

    steady(rate_per_s, burstiness=burstiness)
    kind: Any = {0.0: "constant", 1.0: "poisson"}.get(burstiness, "gamma")
    return Load(kind=kind, rate_per_s=rate_per_s, seed=seed, detail={"burstiness": burstiness})


def ramp_load(text: str, seconds: float, burstiness: float, seed: int) -> "Load":
    """Return the load of a rate that grows, or falls."""
    from corelane.domain.arrivals import ramp
    from corelane.plugins.lab.schema import Load

    try:
        start, end = map(float, text.split(".."))
    except ValueError:
        raise InvalidInput(f"--ramp {text}: write the first and the last rate, as 5..50") from None
    ramp(start, end, seconds)
    detail = {"end_per_s": end, "seconds": seconds, "burstiness": burstiness}
    return Load(kind="ramp", rate_per_s=start, seed=seed, detail=detail)


def stages_load(text: str, burstiness: float, seed: int) -> "Load":
    """Return the load of rates in turn."""
    from corelane.domain.arrivals import stages
    from corelane.plugins.lab.schema import Load

    rate = stages(text).rate_per_s
    return Load(kind="stages", rate_per_s=rate, seed=seed, detail={"stages": text, "burstiness": burstiness})


def trace_load(path: Path, speed: float) -> "Load":
    """Return the load of a trace."""
    from corelane.domain.arrivals import replay
    from corelane.domain.traces import read_trace, trace_hash
    from corelane.plugins.lab.schema import Load

    entries = read_trace(path)
    detail = {"path": str(path), "speed": speed, "hash": trace_hash(entries), "entries": len(entries)}
    return Load(kind="trace", rate_per_s=replay(entries, speed).rate_per_s, detail=detail)


def closed_load(concurrency: int, seed: int) -> "Load":
    """Return the load of a closed loop."""
    from corelane.plugins.lab.schema import Load

    return Load(kind="closed", concurrency=concurrency, seed=seed)


WhereOptions = Annotated[Where, Made(where_options)]
WhatOptions = Annotated[What, Made(what_options)]
LoadOptions = Annotated[Offered, Made(load_options)]
SendingOptions = Annotated[Sending, Made(sending_options)]
