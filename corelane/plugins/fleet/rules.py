"""Compute how many cores the open work needs, and which host runs them. Pure.

All work, in files, in lanes and on cores, is measured in core seconds: a version's tokens divided by the speed
of a core that holds it, or by the last known speed if there is none. Cores are added only for that backlog. A steady
load leaves no backlog: it keeps busy cores, but adds none.

The desired cores are the most that were needed in the last minutes. So cores are added at once and removed late.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

#: A core that works for this share of its time is busy enough to be kept.
BUSY = 0.8

#: A slower speed counts as none, in tokens a second: its backlog would never end.
LEAST_SPEED = 0.01


@dataclass(frozen=True, slots=True)
class OpenLoad:
    """The open work, and the cores that serve now.

    ``tokens`` is the number of unanswered tokens. ``core_s`` is the time that one core would need for them, or None if
    no speed is known. ``busy`` is the sum, over all cores, of the share of time at work.
    """

    tokens: int = 0
    core_s: float | None = None
    cores: int = 0
    busy: float = 0.0
    #: Whether any core has ever reported the versions it can serve. Before that, no job is accepted.
    is_known: bool = True


def core_seconds(
    waiting: Mapping[str, float],
    claimed: Mapping[str, float],
    speeds: Mapping[str, float],
    holders: Mapping[str, Collection[str]],
    remembered: Mapping[str, float],
) -> float | None:
    """Return how long one core would need for all this work; None if there is work, but no speed is known.

    ``waiting``, ``holders`` and ``remembered`` speeds are by version, ``claimed`` tokens and ``speeds`` by core.
    """
    living = [speed for speed in speeds.values() if speed >= LEAST_SPEED]
    mean = sum(living) / len(living) if living else None
    found: list[float] = []

    def add(tokens: float, speed: float | None) -> None:
        if tokens > 0 and speed is not None and speed >= LEAST_SPEED:
            found.append(tokens / speed)

    for version, tokens in waiting.items():
        own = [speeds[core] for core in holders.get(version, ()) if speeds.get(core, 0.0) >= LEAST_SPEED]
        add(tokens, sum(own) / len(own) if own else remembered.get(version, mean))
    known = [*remembered.values()]
    usual = mean if mean is not None else sum(known) / len(known) if known else None
    for core, tokens in claimed.items():
        add(tokens, speeds.get(core, usual))
    if not found and any(tokens > 0 for tokens in (*waiting.values(), *claimed.values())):
        return None
    return sum(found)


def asked_cores(load: OpenLoad, min_cores: int, backlog_s: float) -> int:
    """Return how many cores the current work needs to be done within ``backlog_s``."""
    by_backlog = math.ceil(round((load.core_s or 0.0) / backlog_s, 6))
    by_work = min(load.cores, math.ceil(round(load.busy / BUSY, 6)))
    least = 1 if load.tokens > 0 or not load.is_known else 0
    return max(min_cores, by_backlog, by_work, least)
