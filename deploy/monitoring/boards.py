"""Grafana's boards, from tables of panels.

``python -m deploy.monitoring.boards`` writes ``grafana/boards/*.json`` again.
The board Overview shows whether Corelane is well, the board Diagnostics why not. Queries return only what was measured:
where nothing was measured, a panel shows a gap, not 0. The data source is a variable, so a board can be imported
anywhere.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from deploy.monitoring.panels import Board, Panel, Row, heat, quantiles, rate, stat

#: The files of the boards.
BOARDS = Path(__file__).parent / "grafana" / "boards"

#: The data source that the reader of a board chooses.
SOURCE = {"type": "prometheus", "uid": "${DS_PROMETHEUS}"}

#: How heat maps are coloured.
HEAT = {"mode": "scheme", "scheme": "Oranges", "exponent": 0.5, "steps": 64}

#: What a table of alerts does not show.
NOT_SHOWN = ("Time", "Value", "__name__", "instance", "job")

#: Columns of Grafana's grid.
COLUMNS = 24

OVERVIEW = Board(
    "corelane-overview",
    "Corelane: overview",
    ("corelane-diagnostics", "Diagnostics"),
    [
        Row(
            "Now",
            [
                stat(
                    "Backlog",
                    "max(corelane_backlog_seconds)",
                    "s",
                    (300, 1800),
                    help="Time that the cores need for all work.",
                ),
                stat("Open items", "corelane_open_items"),
                stat("Oldest wait", "max(corelane_oldest_wait_seconds)", "s", (60, 600)),
                stat("Items a second", "sum(corelane:items:rate5m)"),
                stat("Cores up", "sum(corelane_core_up)", help="Cores with a fresh heartbeat."),
                stat("Items that fail", "corelane:items_failed:ratio10m", "percentunit", (0.01, 0.05)),
                stat("Requests with 5xx", "corelane:http_errors:ratio5m", "percentunit", (0.005, 0.02)),
            ],
        ),
        Row(
            "Will it drain",
            [
                Panel("Backlog", [("max(corelane_backlog_seconds)", "backlog")], "s"),
                Panel(
                    "Items in and out",
                    [
                        ("sum (rate(corelane_items_submitted_total[$__rate_interval]))", "submitted"),
                        rate("corelane_items_total", "outcome"),
                    ],
                    "ops",
                    help="More in than out for long: the backlog grows.",
                ),
                Panel("Waiting tokens", [("corelane_waiting_tokens", "{{version}}")], stacked=True),
            ],
        ),
        Row(
            "How long it takes",
            [
                Panel(
                    "Wait before the first core",
                    [
                        ("corelane:wait_seconds:p50_5m", "p50 {{priority}}"),
                        ("corelane:wait_seconds:p95_5m", "p95 {{priority}}"),
                    ],
                    "s",
                    help="A short median beside a long p95 is a queue, not a slow model.",
                ),
                Panel(
                    "Job time",
                    [
                        ("corelane:job_seconds:p50_5m", "p50 {{priority}}"),
                        ("corelane:job_seconds:p95_5m", "p95 {{priority}}"),
                    ],
                    "s",
                    help="From submit to the end.",
                ),
                Panel("Job time, all jobs", heat("corelane_job_seconds"), "s", "heatmap"),
            ],
        ),
        Row(
            "Cores",
            [
                Panel("Busy", [("corelane_core_busy_ratio", "{{core}}")], "percentunit"),
                Panel("Up", [("corelane_core_up", "{{core}}")], kind="state-timeline"),
                Panel("Cores that there are", [("sum(corelane_core_up)", "up")]),
                Panel("Tokens a second", [("corelane:tokens:rate5m", "{{version}}")], stacked=True),
            ],
        ),
        Row(
            "Doors",
            [
                Panel("Requests by status", [rate("corelane_http_requests_total", "status")], "reqps", stacked=True),
                Panel("Webhooks by outcome", [rate("corelane_deliveries_total", "outcome")], "ops", stacked=True),
                Panel(
                    "Alerts",
                    [('ALERTS{alertname=~"Corelane.*"}', "")],
                    kind="table",
                    help="The runbook has a section of the name of each: docs/monitoring.md. Empty: all is well.",
                ),
            ],
        ),
    ],
)

DIAGNOSTICS = Board(
    "corelane-diagnostics",
    "Corelane: diagnostics",
    ("corelane-overview", "Overview"),
    [
        Row(
            "Where the time goes",
            [
                Panel("Submit", quantiles("corelane_submit_seconds"), "s", help="Milliseconds, unless Redis is slow."),
                Panel("Wait by priority", quantiles("corelane_wait_seconds", "priority"), "s"),
                Panel("Oldest wait", [("corelane_oldest_wait_seconds", "{{version}} {{priority}}")], "s"),
                Panel("Tokenize, a batch", quantiles("corelane_tokenize_seconds"), "s", width=6),
                Panel("Compute, a batch", quantiles("corelane_compute_seconds", "version"), "s", width=6),
                Panel("Merge, a batch", quantiles("corelane_merge_seconds"), "s", width=6),
                Panel("Commit, a batch", quantiles("corelane_commit_seconds"), "s", width=6),
            ],
        ),
        Row(
            "Batches",
            [
                Panel("Rows", heat("corelane_batch_rows"), kind="heatmap", width=6),
                Panel("Tokens a batch", [("corelane:tokens_per_batch:mean5m", "{{version}}")], width=6),
                Panel(
                    "Padding",
                    [("corelane:padding:ratio5m", "{{version}}")],
                    "percentunit",
                    width=6,
                    help="Share of padding in all tokens that were computed. Above a half: the buckets do not fit.",
                ),
                Panel("Batches by shape", [rate("corelane_batches_total", "shape")], "ops", width=6, stacked=True),
            ],
        ),
        Row(
            "Cores",
            [
                Panel("Items a second", [rate("corelane_core_items_total", "core")], "ops", width=6),
                Panel("Claimed tokens", [("corelane_claimed_tokens", "{{core}}")], width=6),
                Panel("Memory", [("corelane_core_memory_bytes", "{{core}} {{kind}}")], "bytes", width=6),
                Panel("Restarts", [("corelane_core_restarts_total", "{{core}}")], width=6),
                Panel("Out of service", [("corelane_core_out_of_service", "{{core}}")], kind="state-timeline"),
                Panel("Device busy", [("corelane_core_device_utilization_ratio", "{{core}}")], "percentunit"),
                Panel("Device errors", [("corelane_core_device_errors_total", "{{core}} {{kind}}")]),
            ],
        ),
        Row(
            "Work done twice or in vain",
            [
                Panel("Attempts", [rate("corelane_attempts_total", "attempt")], "ops", stacked=True),
                Panel(
                    "Leases lapsed", [rate("corelane_leases_lapsed_total")], "ops", help="Claims of cores that died."
                ),
                Panel("Wasted tokens", [rate("corelane_wasted_tokens_total", "reason")], "ops", help="Read in vain."),
                Panel("Jobs ended", [rate("corelane_jobs_ended_total", "status")], "ops", stacked=True),
                Panel("Problems", [rate("corelane_problems_total", "code")], "ops", stacked=True),
            ],
        ),
        Row(
            "Store and loops",
            [
                Panel(
                    "Redis memory",
                    [
                        ("corelane_redis_memory_bytes", "used"),
                        ("corelane_redis_reserved_bytes", "results of accepted items"),
                        ("corelane_redis_memory_limit_bytes > 0", "limit"),
                    ],
                    "bytes",
                    width=4,
                ),
                Panel(
                    "Time in scripts",
                    [("sum (rate(corelane_redis_script_seconds_total[$__rate_interval]))", "all")],
                    "percentunit",
                    width=4,
                    help="Share of Redis' one thread. Near 1 it is the limit.",
                ),
                Panel("Replicas in step", [("corelane_redis_replicas", "replicas")], "short", width=4),
                Panel(
                    "Replica behind",
                    [("corelane_redis_replica_lag_bytes", "the last")],
                    "bytes",
                    width=4,
                    help="What a failover would lose now.",
                ),
                Panel("Age of loops", [("corelane_loop_age_seconds", "{{loop}}")], "s", width=4),
                Panel("Overdue work", [("corelane_waiting_seconds", "{{what}}")], "s", width=4),
            ],
        ),
        Row(
            "Webhooks and models",
            [
                Panel("From event to delivery", quantiles("corelane_delivery_seconds"), "s", width=6),
                Panel(
                    "Not delivered",
                    [
                        ("corelane_deliveries_pending", "pending"),
                        ("corelane_deliveries_dead", "dead"),
                        ("corelane_webhook_circuits_open", "open circuits"),
                    ],
                    width=6,
                ),
                Panel("Model loads", [("corelane_model_loads_total", "{{version}} {{outcome}}")], width=6),
                Panel(
                    "Load time, mean of all",
                    [("corelane_model_load_seconds_sum / corelane_model_load_seconds_count", "load, check, warm-up")],
                    "s",
                    width=6,
                ),
            ],
        ),
        Row(
            "API",
            [
                Panel("Requests by route", [rate("corelane_http_requests_total", "route")], "reqps", width=6),
                Panel(
                    "p95 by route",
                    [quantiles("corelane_http_request_seconds", "route")[1]],
                    "s",
                    width=6,
                    help="Routes that wait for a job take as long as it.",
                ),
                Panel("Event streams", [("corelane_event_streams", "open")], width=6),
            ],
        ),
    ],
)


#: Every board.
ALL = (OVERVIEW, DIAGNOSTICS)


def grown(metric: str, by: str) -> str:
    """Return the query for a counter's growth in the last minute, with its first value, which ``increase`` misses."""
    return f"sum by ({by}) ({metric} - ({metric} offset 1m or 0 * {metric})) > 0"


#: Lines across all panels: what was done to the service, and what is wrong with it.
MARKS = [
    ("Done to the service", grown("corelane_marks_total", "kind"), "{{kind}}", "blue"),
    ("Cores restarted", grown("corelane_core_restarts_total", "core"), "{{core}}", "orange"),
    ("Alerts", 'ALERTS{alertstate="firing", alertname=~"Corelane.*"}', "{{alertname}}", "red"),
]


def colours(panel: Panel) -> dict[str, Any]:
    """Return how a panel is coloured."""
    if panel.kind == "state-timeline":
        words = {"0": ("no", "red"), "1": ("yes", "green")}
        if panel.title == "Out of service":
            words = {"0": ("no", "green"), "1": ("yes", "red")}
        options = {value: {"text": text, "color": colour} for value, (text, colour) in words.items()}
        return {"mappings": [{"type": "value", "options": options}]}
    if panel.limits is None:
        return {}
    steps = zip((None, *panel.limits), ("green", "yellow", "red"), strict=True)
    return {"thresholds": {"mode": "absolute", "steps": [{"value": value, "color": colour} for value, colour in steps]}}


def options(panel: Panel) -> dict[str, Any]:
    """Return the options that this kind of panel needs."""
    match panel.kind:
        case "heatmap":
            return {"calculate": False, "yAxis": {"unit": panel.unit}, "color": HEAT}
        case "stat":
            return {"colorMode": "value" if panel.limits else "none", "graphMode": "none"}
        case "timeseries":
            return {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}}
    return {}


def draw(panel: Panel, number: int, x: int, y: int) -> dict[str, Any]:
    """Return a panel as Grafana reads it."""
    defaults: dict[str, Any] = {"unit": panel.unit, **colours(panel)}
    if panel.kind == "timeseries":
        stacking = {"stacking": {"mode": "normal"}, "fillOpacity": 30} if panel.stacked else {}
        defaults |= {"min": 0, "custom": {"spanNulls": False, **stacking}}
    formats: dict[str, dict[str, Any]] = {
        "heatmap": {"format": "heatmap"},
        # Asked for this moment: a figure of the past would outlive its series.
        "stat": {"instant": True, "range": False},
        "table": {"instant": True, "range": False, "format": "table"},
    }
    drawn: dict[str, Any] = {
        "id": number,
        "title": panel.title,
        "type": panel.kind,
        "gridPos": {"x": x, "y": y, "w": panel.width, "h": panel.height},
        "datasource": SOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options(panel),
        "targets": [
            {"refId": chr(ord("A") + at), "datasource": SOURCE, "expr": query, "legendFormat": legend}
            | formats.get(panel.kind, {})
            for at, (query, legend) in enumerate(panel.queries)
        ],
    }
    if panel.kind == "table":
        hidden = {"excludeByName": dict.fromkeys(NOT_SHOWN, True)}
        drawn["transformations"] = [{"id": "organize", "options": hidden}]
    return drawn | ({"description": panel.help} if panel.help else {})


def lay_out(rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """Yield rows and panels from left to right, from top to bottom."""
    number = y = 0
    for row in rows:
        number += 1
        yield {"id": number, "type": "row", "title": row.title, "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1}}
        x, y, height = 0, y + 1, 0
        for panel in row.panels:
            if x + panel.width > COLUMNS:
                x, y = 0, y + height
            number += 1
            yield draw(panel, number, x, y)
            x, height = x + panel.width, panel.height
        y += height


def write(board: Board) -> str:
    """Return a board as JSON."""
    uid, title = board.links_to
    link = {
        "type": "link",
        "title": title,
        "url": f"/d/{uid}",
        "keepTime": True,
        "includeVars": True,
        "icon": "dashboard",
    }
    source = {"name": "DS_PROMETHEUS", "label": "Prometheus", "type": "datasource", "query": "prometheus"}
    marks = [
        {"name": name, "datasource": SOURCE, "enable": True, "iconColor": colour, "titleFormat": title}
        | {"expr": expr, "step": "60s"}
        for name, expr, title, colour in MARKS
    ]
    drawn = {
        "uid": board.uid,
        "title": board.title,
        "tags": ["corelane"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [source]},
        "annotations": {"list": marks},
        "links": [link],
        "panels": list(lay_out(board.rows)),
    }
    return json.dumps(drawn, indent=1) + "\n"


def files() -> dict[Path, str]:
    """Return the file of each board with what it holds."""
    return {BOARDS / f"{board.uid.removeprefix('corelane-')}.json": write(board) for board in ALL}


if __name__ == "__main__":
    BOARDS.mkdir(exist_ok=True)
    for path, text in files().items():
        path.write_text(text)
