"""Writes a time in words, for readers. Pure."""

import math

MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400

#: Longer times are not given to the day.
LONGEST_DAYS = 100


def duration(seconds: float) -> str:
    """Format a time to wait, rounded because it is uncertain: 40 s, 35 min, 2 h 10 min, 3 days."""
    if seconds < 1:
        return "a second"
    if seconds < 10:
        return f"{math.ceil(seconds)} s"
    if seconds < 100:
        return f"{5 * round(seconds / 5)} s"
    if seconds < 100 * MINUTE_S:
        return f"{round(seconds / MINUTE_S)} min"
    if seconds < 10 * HOUR_S:
        minutes = 10 * round(seconds / MINUTE_S / 10)
        return f"{minutes // 60} h {minutes % 60} min" if minutes % 60 else f"{minutes // 60} h"
    if seconds < 2 * DAY_S:
        return f"{round(seconds / HOUR_S)} h"
    if seconds > LONGEST_DAYS * DAY_S:
        return f"more than {LONGEST_DAYS} days"
    return f"{round(seconds / DAY_S):,} days"
