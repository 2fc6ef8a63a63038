"""Backlog: how long the cores that hold a version need for its outstanding work. Pure.

A core that holds several versions divides its time among them in proportion to their waiting work.
"""

import math
from collections.abc import Collection, Mapping


def backlog_seconds(
    waiting: Mapping[str, float],
    claimed: Mapping[str, float],
    speeds: Mapping[str, float],
    holders: Mapping[str, Collection[str]],
) -> dict[str, float]:
    """Return the backlog in seconds, by version: infinite if no core holds the version, left out if unknown.

    ``waiting`` and ``holders`` are by version, ``claimed`` tokens and ``speeds`` in tokens a second by core. The time
    of a version is unknown if no core that holds it has measured its speed.
    """
    held_by: dict[str, list[str]] = {}
    for version, cores in holders.items():
        for core in cores:
            held_by.setdefault(core, []).append(version)

    def share(core: str, version: str) -> float:
        total = sum(waiting.get(each, 0) for each in held_by[core])
        return waiting.get(version, 0) / total if total else 1 / len(held_by[core])

    found = {}
    for version in {*waiting, *holders}:
        cores = holders.get(version, ())
        tokens = waiting.get(version, 0) + sum(claimed.get(core, 0) * share(core, version) for core in cores)
        speed = sum(speeds.get(core, 0.0) * share(core, version) for core in cores)
        if not tokens:
            found[version] = 0.0
        elif speed:
            found[version] = tokens / speed
        elif not cores:
            found[version] = math.inf
    return found


def longest_backlog(backlog_s: Mapping[str, float], waiting: Mapping[str, float], speed: float) -> float | None:
    """Return the longest backlog; work for versions that no core can serve now is counted at ``speed``.

    ``speed`` is in tokens a second.
    """
    known = {version: seconds for version, seconds in backlog_s.items() if math.isfinite(seconds)}
    rest = sum(tokens for version, tokens in waiting.items() if version not in known)
    return max([*known.values(), *([rest / speed] if rest and speed else [])], default=None)
