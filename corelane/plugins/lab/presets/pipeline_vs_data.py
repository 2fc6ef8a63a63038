"""``pipeline-vs-data``: one model on all cores against one model a core, with one row and six rows a batch.

On inf1 a model may be laid over several cores (a pipeline). On a CPU its counterpart is one core of all CPUs, whose
model runs in as many threads. Data parallel is a model a core. Each variant is a service of its own, with a model
compiled for its one shape. Two loads are offered to each: one caller, who shows the latency, and as many as keep every
batch of every core full.
"""

from dataclasses import dataclass, replace

from corelane.errors import SetupError
from corelane.plugins.lab.presets.preset import (
    TOKENS_128,
    Preset,
    PresetOutcome,
    Row,
    Stage,
    Variant,
    closed_plan,
    settle,
)
from corelane.plugins.lab.presets.tables import milliseconds
from corelane.plugins.lab.published import AGAINST_G4DN, PIPELINE_VS_DATA
from corelane.plugins.lab.schema import Load, LoadPoint
from corelane.plugins.lab.session import Session
from corelane.plugins.lab.sweep import mean_of

#: Rows of a batch, and the length that all are compiled for.
ROWS, LENGTH = (1, 6), 128

#: Seconds of each load, requests of a quick one, different questions.
DURATION_S, QUICK_REQUESTS, QUESTIONS = 20.0, 6, 200

#: Batches' worth of callers for a core: one runs, one waits.
BATCHES_AHEAD = 2


@dataclass(frozen=True, slots=True)
class Mode:
    """A way to use the cores: how many serve, and over how many CPUs each lies."""

    name: str
    cores: int
    cpus_per_core: int

    def variant(self, rows: int) -> Variant:
        """Return its service for batches of so many rows."""
        settings: dict[str, object] = {"cpus_per_core": self.cpus_per_core, "cores": self.cores}
        return Variant(f"{self.name}, batch {rows}", settings, f"{rows}x{LENGTH}")


def modes(cpus: int) -> list[Mode]:
    """Return both ways to use these CPUs; the first is the baseline."""
    return [Mode("data parallel", cpus, 1), Mode("pipeline", 1, cpus)]


def run(stage: Stage) -> PresetOutcome:
    """Measure each variant in a service of its own."""
    if stage.serve is None:
        raise SetupError("pipeline-vs-data starts the services that it measures: leave --url out")
    questions = stage.of_length(TOKENS_128, QUICK_REQUESTS if stage.quick else QUESTIONS)
    points: list[LoadPoint] = []
    rows: list[Row] = []
    baseline: float | None = None
    session: Session | None = None
    for mode in modes(stage.cores):
        for batch in ROWS:
            variant = mode.variant(batch)
            stage.say(f"{variant.name}: a service of its own")
            session = stage.session(questions, closed_plan(1, QUICK_REQUESTS, stage.seed), stage.serve(variant))
            lone, full = _measure(stage, session, variant, callers=BATCHES_AHEAD * batch * mode.cores)
            points += [lone, full]
            per_s = mean_of(full, "items_per_s") or 0.0
            baseline = baseline or per_s
            rows.append(_row(stage, variant, mode, batch, lone, full, per_s / baseline if baseline else 0.0))
    if session is None:
        raise SetupError("there is no CPU to serve on")
    return PresetOutcome(session, points, rows, (*AGAINST_G4DN, *PIPELINE_VS_DATA))


def _measure(stage: Stage, session: Session, variant: Variant, callers: int) -> tuple[LoadPoint, LoadPoint]:
    """Measure a variant with one caller, and with as many as fill its batches."""
    if not stage.quick:
        session.plan = replace(session.plan, requests=None, duration_s=DURATION_S, warmup_s=2.0)
    found = []
    with stage.showing(session):
        for name, count in (("1 caller", 1), (f"{callers} callers", callers)):
            settle()
            load = Load(kind="closed", concurrency=count, seed=stage.seed)
            found.append(session.measure(f"{variant.name}, {name}", load))
    return found[0], found[1]


def _row(stage: Stage, variant: Variant, mode: Mode, batch: int, lone: LoadPoint, full: LoadPoint, ratio: float) -> Row:
    per_s = mean_of(full, "items_per_s") or 0.0
    return {
        "what": variant.name,
        "where": "here",
        "cores a model": str(mode.cpus_per_core),
        "models": str(mode.cores),
        "batch": str(batch),
        "items/s": f"{per_s:,.1f}",
        "ratio": f"{ratio:.2f}",
        "p50 ms": milliseconds(mean_of(full, "p50_s")),
        "p95 ms": milliseconds(mean_of(full, "p95_s")),
        "p99 ms": milliseconds(mean_of(full, "p99_s")),
        "alone p50 ms": milliseconds(mean_of(lone, "p50_s")),
        "alone p95 ms": milliseconds(mean_of(lone, "p95_s")),
        "cost of 1M": stage.cost(per_s),
    }


PRESET = Preset(
    "pipeline-vs-data",
    "one model on all cores against one a core, batches of 1 and 6: items/s, p95, cost, ratio to the first row",
    run,
    own_services=True,
)
