"""``all-cores``: the parallel client of the sample for FastAPI on Inferentia, and how busy each core is by it.

The sample starts one server a core and calls each by a thread of its own. Here one service has all cores, so callers
need not know them. One caller a core is as in the sample. Four a core show what the cores can do.
"""

from corelane.plugins.lab.presets.preset import TOKENS_128, Preset, PresetOutcome, Row, Stage, closed_plan, settle
from corelane.plugins.lab.presets.tables import milliseconds
from corelane.plugins.lab.published import ALL_CORES
from corelane.plugins.lab.schema import Load, LoadPoint, ServiceSplit
from corelane.plugins.lab.sweep import mean_of

#: Requests of each point for a core, and in a quick run; different questions among them.
REQUESTS, QUICK_REQUESTS, QUESTIONS = 1000, 6, 200

#: Callers for a core.
CALLERS = (1, 4)


def run(stage: Stage) -> PresetOutcome:
    """Have all cores called at once, by few and by more callers."""
    cores = max(1, stage.cores)
    requests = (QUICK_REQUESTS if stage.quick else REQUESTS) * cores
    plan = closed_plan(cores, requests, stage.seed)
    session = stage.session(stage.of_length(TOKENS_128, QUICK_REQUESTS if stage.quick else QUESTIONS), plan)
    points: list[LoadPoint] = []
    with stage.showing(session):
        for callers in CALLERS:
            settle()
            name = f"{callers} caller{'s' if callers > 1 else ''} a core"
            load = Load(kind="closed", concurrency=callers * cores, seed=stage.seed)
            points.append(session.measure(name, load))
    rows = [row for point in points for row in rows_of(point, stage)]
    return PresetOutcome(session, points, rows, ALL_CORES)


def rows_of(point: LoadPoint, stage: Stage) -> list[Row]:
    """Return the row of a point, and one for each core beneath it."""
    per_s = mean_of(point, "items_per_s") or 0.0
    whole: dict[str, str] = {
        "what": point.name,
        "where": "here",
        "items/s": f"{per_s:,.1f}",
        "p50 ms": milliseconds(mean_of(point, "p50_s")),
        "p95 ms": milliseconds(mean_of(point, "p95_s")),
        "cost of 1M": stage.cost(per_s),
    }
    server = point.runs[-1].server if point.runs else None
    if server is None:
        return [whole]
    return [whole, *_core_rows(server)]


def _core_rows(server: ServiceSplit) -> list[Row]:
    return [
        {
            "what": f"core {core}",
            "items": f"{server.core_items.get(core, 0):,}",
            "windows": f"{server.core_windows.get(core, 0):,}",
            "busy": f"{busy:.0%}",
            "padding": f"{server.core_padding.get(core, 0.0):.0%}",
        }
        for core, busy in server.core_busy.items()
    ]


PRESET = Preset("all-cores", "the sample's parallel client: every core busy, and what each of them did", run)
