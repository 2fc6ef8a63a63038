"""``latency-100``: 100 requests of 128 tokens, one after the other; their mean and p95."""

from corelane.plugins.lab.presets.preset import TOKENS_128, Preset, PresetOutcome, Stage, closed_plan, settle
from corelane.plugins.lab.presets.tables import milliseconds
from corelane.plugins.lab.published import LATENCY_100
from corelane.plugins.lab.schema import LoadPoint
from corelane.plugins.lab.sweep import mean_of

#: Requests, and those of a quick run.
REQUESTS, QUICK_REQUESTS = 100, 5


def run(stage: Stage) -> PresetOutcome:
    """Ask one question after the other, over one connection."""
    count = QUICK_REQUESTS if stage.quick else REQUESTS
    session = stage.session(stage.of_length(TOKENS_128, count), closed_plan(1, count, stage.seed))
    settle()
    with stage.showing(session):
        point = session.measure("1 caller", session.plan.load)
    return PresetOutcome(session, [point], [row(point, count, stage)], LATENCY_100)


def row(point: LoadPoint, count: int, stage: Stage) -> dict[str, str]:
    """Return the measured row."""
    per_s = mean_of(point, "items_per_s") or 0.0
    return {
        "what": f"{count} requests, one after the other",
        "where": "here",
        "mean ms": milliseconds(mean_of(point, "mean_s")),
        "p50 ms": milliseconds(mean_of(point, "p50_s")),
        "p95 ms": milliseconds(mean_of(point, "p95_s")),
        "items/s": f"{per_s:,.1f}",
        "cost of 1M": stage.cost(per_s),
    }


PRESET = Preset("latency-100", "100 requests of 128 tokens, one after the other: mean and p95", run)
