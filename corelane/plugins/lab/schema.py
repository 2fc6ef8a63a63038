"""The report of a bench run, as `--json` writes it and `compare` reads it. Pure.

Fields may be added; where one changes its meaning, ``SCHEMA`` changes. Times are seconds. Times of a run count from its
start, by the monotonic clock. A rate counts requests, unless its name says items.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from corelane.domain.jobs import DEFAULT_TASK

#: Name and version of the schema.
SCHEMA = "corelane.bench/1"

#: How a request was submitted: a lone item, a job of several, a job sent as lines, or a batch of a file.
Way = Annotated[
    Literal["item", "job", "lines", "batch"], BeforeValidator(lambda way: "item" if way == "question" else way)
]

#: How the end of a job was heard: in the response that waits, by polling, by events, or by a webhook.
Hearing = Literal["wait", "poll", "sse", "webhook"]

#: What became of a request: answered in full, refused as too much work waited, failed, or not ended when time was up.
Outcome = Literal["ok", "refused", "error", "unfinished"]

#: The part of a run that a request belongs to; only `measured` ones count.
Phase = Literal["warmup", "measured", "tail"]


class ReportPart(BaseModel):
    """A part of a report. It also reads parts of later versions, since unknown fields are ignored."""


def stored(**names: str) -> ConfigDict:
    """Return that fields keep the names in reports that they had when all items were questions."""
    return ConfigDict(alias_generator=lambda name: names.get(name, name), populate_by_name=True)


class Request(ReportPart):
    """One request of a run: a line of `--requests-out FILE`."""

    number: int = Field(description="Place among the arrivals of the run.")
    process: int = Field(description="The process of the generator that sent it.")
    phase: Phase
    outcome: Outcome
    intended_s: float = Field(description="When it was due.")
    begun_s: float = Field(0.0, description="When the generator turned to it.")
    sent_s: float | None = Field(None, description="When its first byte was sent; null if it never was.")
    accepted_s: float | None = Field(None, description="When the service had given it a job id.")
    first_s: float | None = Field(None, description="When the first of its results was there, where that was watched.")
    ended_s: float | None = Field(None, description="When its results were there.")
    items: int = Field(description="Items in it.")
    tokens: int = Field(0, description="Estimated tokens of its windows, as the service charges them.")
    job: str | None = None
    retries: int = Field(0, description="Times it was sent again.")
    error: str | None = Field(None, description="The problem's code.")
    detail: str | None = None
    lost: int = Field(0, description="Items that no result came for.")
    twice: int = Field(0, description="Items that more than one result came for.")
    wrong: int = Field(0, description="Results that differ from those of the idle service.")


class Spread(ReportPart):
    """How a figure is spread over requests."""

    count: int
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


class Interval(ReportPart):
    """A figure over the repeats of a run: its mean, and the interval that holds the true mean in 95 of 100 cases."""

    mean: float
    low: float
    high: float
    cv: float = Field(description="Coefficient of variation: standard deviation over mean.")
    values: list[float]


class Load(ReportPart):
    """What one point of a run offers: open loop (`rate_per_s`, or arrivals that say when) or closed (`concurrency`)."""

    kind: Literal["constant", "poisson", "gamma", "ramp", "stages", "trace", "closed"]
    rate_per_s: float | None = None
    concurrency: int | None = None
    duration_s: float | None = None
    seed: int = 0
    detail: dict[str, Any] = Field(default_factory=dict, description="Stages, the end of a ramp, a trace's hash.")

    @property
    def name(self) -> str:
        """The load in a word or two: the name of its point."""
        match self.kind:
            case "closed":
                return f"{self.concurrency} callers" if self.concurrency != 1 else "1 caller"
            case "ramp":
                return f"{self.rate_per_s:g}..{self.detail['end_per_s']:g}/s"
            case "stages":
                return str(self.detail["stages"])
            case "trace":
                return f"trace ×{self.detail.get('speed', 1.0):g}"
            case _:
                return f"{self.rate_per_s:g}/s {self.kind}"

    @property
    def text(self) -> str:
        """The load's name, and its duration if it has one."""
        return self.name if self.duration_s is None else f"{self.name} for {self.duration_s:g} s"


class Generator(ReportPart):
    """Whether the generator kept up. Lateness is the time from when a request was due until it was sent."""

    processes: int
    requested_per_s: float | None = Field(None, description="Null in a closed loop.")
    achieved_per_s: float
    lateness: Spread | None = None
    cpu_s: float = Field(description="CPU time of its processes.")
    cpu_share: float = Field(description="The busiest process' CPU time over the run's time.")
    held: int = Field(0, description="Requests that waited for a place: `--max-in-flight`, or too few descriptors.")

    @property
    def achieved_share(self) -> float | None:
        """The sent share of the requested rate; None in a closed loop."""
        return self.achieved_per_s / self.requested_per_s if self.requested_per_s else None


class ErrorCount(ReportPart):
    """Failures of one class. Latencies do not include them."""

    code: str
    count: int
    sample: str


class Goodput(ReportPart):
    """The share of requests that met the objective, and their items a second."""

    objective: str
    share: float = Field(description="Of all measured requests; failures count as not good.")
    items_per_s: float


class ServiceSplit(ReportPart):
    """Where the time went inside the service, from its own metrics at the start and end of the measured part.

    All spreads but `batch_rows` are in seconds; p90 and max are interpolated or bounded by buckets.
    """

    submit: Spread | None = None
    wait: Spread | None = None
    tokenize: Spread | None = None
    compute: Spread | None = None
    merge: Spread | None = None
    commit: Spread | None = None
    deliver: Spread | None = None
    job: Spread | None = None
    batch_rows: Spread | None = None
    padding_share: float | None = Field(None, description="Padding over all tokens that the model read.")
    tokens_per_s: float | None = None
    core_busy: dict[str, float] = Field(default_factory=dict, description="Share of time at work, by core.")
    core_items: dict[str, int] = Field(default_factory=dict, description="Items answered, by core.")
    seconds: float | None = Field(None, description="Time between the two readings.")

    @property
    def busy(self) -> float | None:
        """The mean share of time at work of all cores."""
        return sum(self.core_busy.values()) / len(self.core_busy) if self.core_busy else None


class ResultCheck(ReportPart):
    """Whether results were right under load."""

    checked: int
    lost: int = 0
    twice: int = 0
    differ_from_idle: int | None = Field(None, description="Results unlike those of the idle service.")
    exact: float | None = Field(None, description="Exact match in percent, where the file has right ones.")
    f1: float | None = None

    @property
    def is_wrong(self) -> bool:
        """Whether a result was lost, doubled or unlike the idle service's result."""
        return bool(self.lost or self.twice or self.differ_from_idle)


class Run(ReportPart):
    """One repeat at one point. `latency` counts from when requests were due, `latency_sent` from their sending."""

    model_config = stored(results="answers")

    began_at: str
    measured_s: float
    measured_from_s: float = Field(0.0, description="When the measured part began.")
    requests: int
    items: int
    ok: int
    refused: int
    failed: int
    unfinished: int
    retries: int = Field(0, description="Times that requests were sent again after a refusal.")
    generator: Generator
    latency: Spread | None
    latency_sent: Spread | None
    first: Spread | None = Field(None, description="Time from when a request was due to its first result.")
    requests_per_s: float
    items_per_s: float
    tokens_per_s: float
    goodput: Goodput | None = None
    errors: list[ErrorCount] = Field(default_factory=list)
    server: ServiceSplit | None = None
    results: ResultCheck | None = None
    timeline: list[dict[str, float]] = Field(
        default_factory=list, description="By second: `at_s`, `sent`, `ended`, `p50_s`, `p95_s`, `in_flight`."
    )
    latencies: list[float] = Field(
        default_factory=list, description="Latencies of the measured requests, for comparisons; at most 5,000."
    )
    invalid: list[str] = Field(default_factory=list, description="Why the run proves nothing; empty if it is valid.")
    block: int | None = Field(None, description="Of a paired session: the block A B B A that the run belongs to.")


class Pairing(ReportPart):
    """A report's place in a pair whose runs were measured in turn, so that `compare` can take differences."""

    session: str = Field(description="The same in both reports.")
    side: Literal["A", "B"]
    order: str = Field(description="The sides of all runs in the order of time, as `ABBAABBA`.")


class LoadPoint(ReportPart):
    """One load, measured once or several times."""

    name: str
    load: Load
    runs: list[Run]
    figures: dict[str, Interval] = Field(
        default_factory=dict,
        description="Over the runs: `p50_s`, `p95_s`, `p99_s`, `mean_s`, `items_per_s`, `requests_per_s`, `goodput`.",
    )

    @property
    def is_valid(self) -> bool:
        """Whether every run of the point is valid."""
        return not any(run.invalid for run in self.runs)


class Beside(ReportPart):
    """A batch beside interactive requests: how long it took, and how much it slowed them."""

    model_config = stored(results="answers", batch_results="batch_answers")

    items: int
    makespan_s: float
    first_result_s: float | None
    items_per_s: float
    progress: list[tuple[float, int]] = Field(description="Seconds since it was submitted, and items done.")
    before: Spread
    during: Spread
    after: Spread
    results: ResultCheck | None = Field(None, description="Of the requests.")
    batch_results: ResultCheck | None = Field(None, description="Of the batch; null if it was canceled.")
    way: str = Field("lines", description="What ran beside the requests: lines, batch, documents.")
    owner: Literal["own", "foreign"] = Field("own", description="Whether both came with the same API key.")
    rate_per_s: float | None = Field(None, description="Requests a second that were offered.")
    items_per_job: int = Field(1, description="Items in each of these requests.")
    accepted_s: float | None = Field(None, description="Time until the whole batch was handed in.")
    canceled: bool = Field(False, description="Whether the batch was canceled before its end.")
    submitted_at_s: float | None = Field(None, description="When it was submitted, from the start of the requests.")
    failed: int = Field(0, description="Requests that failed or were refused; they are in no latency.")
    lateness: Spread | None = None
    timeline: list[dict[str, float]] = Field(default_factory=list, description="Of the requests, as in a run.")
    invalid: list[str] = Field(default_factory=list, description="Why it proves nothing; empty if it is valid.")

    @property
    def parts(self) -> dict[str, Spread]:
        """The requests' latencies before the batch, beside it and after it."""
        return {"before": self.before, "beside": self.during, "after": self.after}

    @property
    def ratio_p95(self) -> float:
        """The requests' p95 beside the batch, divided by their p95 before the batch; 0 if this is 0."""
        return self.during.p95 / self.before.p95 if self.before.p95 else 0.0


class Published(ReportPart):
    """A figure somebody published, to read beside the measured one."""

    name: str
    instance: str
    date: str
    source: str
    figures: dict[str, float]
    note: str = ""


class WorkloadInfo(ReportPart):
    """The items that were sent. Runs compare only if `hash` is the same."""

    model_config = stored(items="questions", text_words="context_words", has_known="has_answers")

    source: str
    hash: str
    task: str = DEFAULT_TASK
    items: int
    words: int
    tokens: int = Field(description="Estimated, as the service charges them.")
    text_words: Spread
    seed: int | None = None
    has_known: bool = False


class Machine(ReportPart):
    """The machine of the generator."""

    cpu: str
    cores: int
    memory_bytes: int
    amx: bool
    kernel: str
    python: str
    mhz: float | None = Field(
        None, description="Clock of its CPUs once the run was over, the mean, as the kernel says."
    )


class ServiceInfo(ReportPart):
    """The service's description of itself."""

    url: str
    version: str
    model: str
    digest: str | None = None
    dtype: str | None = None
    cores: list[str] = Field(default_factory=list)
    detail: dict[str, Any] = Field(default_factory=dict)


class Report(ReportPart):
    """The whole report of a bench run."""

    schema_: Annotated[str, Field(alias="schema")] = SCHEMA
    name: str = Field(description="The preset, or what the command line asked for, in a word.")
    created_at: str
    command: list[str]
    configuration: dict[str, Any] = Field(description="Every option, those left at their defaults too.")
    way: Way
    hearing: Hearing
    machine: Machine
    service: ServiceInfo
    workload: WorkloadInfo
    points: list[LoadPoint]
    knee: dict[str, float] | None = Field(None, description="Of a sweep: `rate_per_s`, `p95_s`, `items_per_s`.")
    found_rate: dict[str, Any] | None = Field(None, description="Of `--find-rate`: the objective and the rate.")
    beside: Beside | None = None
    published: list[Published] = Field(default_factory=list)
    extra: dict[str, Any] = Field(default_factory=dict, description="Rows of a preset.")
    assertions: list[dict[str, Any]] = Field(
        default_factory=list, description="Each with `text`, `figure` and `holds`."
    )
    pairing: Pairing | None = Field(None, description="Of `bench ab`: the session that both reports come from.")
    valid: bool
    invalid: list[str] = Field(default_factory=list)

    model_config = ConfigDict(populate_by_name=True)

    @property
    def checks(self) -> dict[str, list[ResultCheck]]:
        """The checks of results: of all runs, of the requests beside a batch, and of that batch."""
        groups: dict[str, list[ResultCheck | None]] = {
            "results": [run.results for point in self.points for run in point.runs],
            "requests' results": [self.beside.results] if self.beside else [],
            "batch's results": [self.beside.batch_results] if self.beside else [],
        }
        return {label: [each for each in checks if each is not None] for label, checks in groups.items()}

    @property
    def are_results_right(self) -> bool:
        """Whether no result was lost, doubled or unlike the idle service's result."""
        return not any(check.is_wrong for checks in self.checks.values() for check in checks)
