"""What the charts of the overview show: the history of the service as columns, and the marks on it."""

import time
from typing import Any

from api.deps import Parts

#: What a reader may choose, in minutes, with its name; the charts begin with the second.
RANGES = ((15, "15 min"), (60, "1 h"), (360, "6 h"))
DEFAULT_MINUTES = 60

#: More points than this are not told apart on a chart.
MOST_POINTS = 400

#: The values of a point that charts draw.
COLUMNS = ("items_s", "failed_s", "p50_s", "p95_s", "wait_p95_s", "backlog_s", "padding_ratio", "busy")


async def read_columns(parts: Parts, minutes: int) -> dict[str, Any]:
    """Return the history of the last minutes: a list for each value, the times in seconds as ``at``, and ``marks``."""
    now_ms = int(time.time() * 1000)
    since_ms = now_ms - minutes * 60_000
    points, marks = await parts.history.points(since_ms, MOST_POINTS), await parts.history.marks(since_ms)
    return {
        "now": now_ms / 1000,
        "minutes": minutes,
        "at": [point.at_ms / 1000 for point in points],
        "marks": [{"at": mark.at_ms / 1000, "kind": mark.kind, "text": mark.text} for mark in marks],
        **{name: [getattr(point, name) for point in points] for name in COLUMNS},
    }
