"""What the charts of the overview show: the history of the service as columns, and the marks on it."""

from typing import Any

from api.state import AppState
from corelane.plugins.console.routes.history import read_history

#: What a reader may choose, in minutes, with its name.
RANGES = ((15, "15 min"), (60, "1 h"), (360, "6 h"))
DEFAULT_MINUTES = 60

#: The values of a point that charts draw.
COLUMNS = ("items_s", "failed_s", "p50_s", "p95_s", "wait_p95_s", "backlog_s", "padding_ratio", "busy")


async def read_columns(state: AppState, minutes: int) -> dict[str, Any]:
    """Return the history of the last minutes: a list for each value, the times in seconds as ``at``, and ``marks``."""
    now_ms, points, marks = await read_history(state, minutes)
    return {
        "now": now_ms / 1000,
        "at": [point.at_ms / 1000 for point in points],
        "marks": [{"at": mark.at_ms / 1000, "kind": mark.kind, "text": mark.text} for mark in marks],
        **{name: [getattr(point, name) for point in points] for name in COLUMNS},
    }
