"""The presets of points: closed loops on one service or on several, and a row of figures for each.

``latency-100`` asks 100 requests of 128 tokens, one after the other. ``all-cores`` is the parallel client of the sample
for FastAPI on Inferentia. The sample starts a server for each core and calls each server in one thread; here one
service has all cores. One caller for each core is as in the sample; four show what the cores can do.

``pipeline-vs-data`` compares one model on all cores with one model on each core, in batches of one row and of six. On
inf1 a model may be laid over several cores (a pipeline). On a CPU its counterpart is one core with all CPUs, whose
model runs in as many threads. Each variant is a separate service, with a model compiled for one shape. One caller
measures the latency. The throughput is measured with as many callers as keep every batch full.
"""

import time
from dataclasses import replace
from itertools import product

from corelane.plugins.lab.presets.preset import TOKENS_128, Preset, PresetOutcome, Row, Stage, closed
from corelane.plugins.lab.presets.tables import milliseconds
from corelane.plugins.lab.published import AGAINST_G4DN, ALL_CORES, LATENCY_100, PIPELINE_VS_DATA
from corelane.plugins.lab.schema import LoadPoint
from corelane.plugins.lab.session import Session
from corelane.plugins.lab.split import FLUSHED_S
from corelane.plugins.lab.sweep import mean_of

#: Requests of `latency-100`, requests of `all-cores` for each core, and requests of a quick run.
LATENCY_REQUESTS, CORE_REQUESTS, QUICK_REQUESTS = 100, 1000, 6

#: Number of different items, which are repeated where more are sent.
ITEMS = 200

#: Callers for each core: there is a load for each of these numbers.
CALLERS = (1, 4)

#: Rows of a batch, the length that all are compiled for, and the seconds of each load.
ROWS, LENGTH, DURATION_S = (1, 6), 128, 20.0

#: Callers for each core, counted in full batches: one batch runs, one waits.
BATCHES_AHEAD = 2


def measured(stage: Stage, session: Session, loads: dict[str, int]) -> list[LoadPoint]:
    """Measure a closed loop for each name, with its number of callers."""
    points = []
    with stage.show(session):
        for name, callers in loads.items():
            time.sleep(FLUSHED_S)  # what came before is counted
            points.append(session.measure(name, closed(callers, stage.seed)))
    return points


def row_of(stage: Stage, point: LoadPoint, *figures: str, **cells: str) -> Row:
    """Return a point's row: name, ``cells``, items a second, times of ``figures``, and cost of a million items."""
    per_s = mean_of(point, "items_per_s") or 0.0
    times = {f"{name} ms": milliseconds(mean_of(point, f"{name}_s")) for name in figures}
    return {
        "what": point.name,
        "where": "here",
        **cells,
        "items/s": f"{per_s:,.1f}",
        **times,
        "cost of 1M": stage.cost(per_s),
    }


def latency_100(stage: Stage) -> PresetOutcome:
    """Send one item after the other, over one connection."""
    count = QUICK_REQUESTS if stage.quick else LATENCY_REQUESTS
    session = stage.session(stage.of_length(TOKENS_128, count), requests=count)
    [point] = measured(stage, session, {"1 caller": 1})
    row = row_of(stage, point, "mean", "p50", "p95", what=f"{count} requests, one after the other")
    return PresetOutcome(session, [point], [row], LATENCY_100)


def all_cores(stage: Stage) -> PresetOutcome:
    """Have all cores called at once, by few and by more callers."""
    cores = max(1, stage.cores)
    workload = stage.of_length(TOKENS_128, QUICK_REQUESTS if stage.quick else ITEMS)
    session = stage.session(workload, requests=(QUICK_REQUESTS if stage.quick else CORE_REQUESTS) * cores)
    names = {f"{callers} caller{'s' if callers > 1 else ''} a core": callers * cores for callers in CALLERS}
    points = measured(stage, session, names)
    rows = [row for point in points for row in (row_of(stage, point, "p50", "p95"), *core_rows(point))]
    return PresetOutcome(session, points, rows, ALL_CORES)


def core_rows(point: LoadPoint) -> list[Row]:
    """Return a row for each core at a point."""
    server = point.runs[-1].server if point.runs else None
    if server is None:
        return []
    return [
        {"what": f"core {core}", "items": f"{server.core_items.get(core, 0):,}", "busy": f"{busy:.0%}"}
        for core, busy in server.core_busy.items()
    ]


def pipeline_vs_data(stage: Stage) -> PresetOutcome:
    """Measure each variant in a service of its own."""
    workload = stage.of_length(TOKENS_128, QUICK_REQUESTS if stage.quick else ITEMS)
    points: list[LoadPoint] = []
    rows: list[Row] = []
    baseline = 0.0
    cpus = stage.cores
    # How many cores serve, and over how many CPUs each lies; the first is the baseline.
    modes = {"data parallel": (cpus, 1), "pipeline": (1, cpus)}
    for (mode, (cores, cpus_per_core)), batch in product(modes.items(), ROWS):
        settings: dict[str, object] = {"cpus_per_core": cpus_per_core, "cores": cores}
        variant = f"{mode}, batch {batch}"
        stage.say(f"{variant}: a service of its own")
        target = stage.serve(settings, f"{batch}x{LENGTH}")
        session = stage.session(workload, requests=QUICK_REQUESTS, target=target)
        if not stage.quick:
            session.plan = replace(session.plan, requests=None, duration_s=DURATION_S, warmup_s=2.0)
        callers = BATCHES_AHEAD * batch * cores
        names = {f"{variant}, 1 caller": 1, f"{variant}, {callers} callers": callers}
        lone, full = measured(stage, session, names)
        points += [lone, full]
        per_s = mean_of(full, "items_per_s") or 0.0
        baseline = baseline or per_s
        cells = {
            "what": variant,
            "cores a model": str(cpus_per_core),
            "models": str(cores),
            "batch": str(batch),
            "ratio": f"{per_s / baseline if baseline else 0.0:.2f}",
            "alone p50 ms": milliseconds(mean_of(lone, "p50_s")),
            "alone p95 ms": milliseconds(mean_of(lone, "p95_s")),
        }
        rows.append(row_of(stage, full, "p50", "p95", "p99", **cells))
    return PresetOutcome(session, points, rows, (*AGAINST_G4DN, *PIPELINE_VS_DATA))


PRESETS = (
    Preset("latency-100", "100 requests of 128 tokens, one after the other: mean and p95", latency_100),
    Preset("all-cores", "the sample's parallel client: every core busy, and what each of them did", all_cores),
    Preset(
        "pipeline-vs-data",
        "one model on all cores against one a core, batches of 1 and 6: items/s, p95, cost, ratio to the first row",
        pipeline_vs_data,
        own_services=True,
    ),
)
