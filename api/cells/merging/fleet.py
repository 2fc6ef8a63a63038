"""The fleets of several cells as one: cores, models, aliases, readiness, the overview and the history."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from corelane.domain.drain import Sign

#: What each cell answered, by cell.
Found = Mapping[str, Any]

#: The signs of a forecast, the worst last.
WORST = (Sign.IDLE, Sign.DRAINING, Sign.PAUSED, Sign.GROWING, Sign.STALLED)

#: Points of a history this near each other are of the same time, in seconds: points of six hours, and those of a week.
FINE_S, COARSE_S = 10, 300

#: How figures of several cells become one figure.
SUMMED = ("items_s", "failed_s", "jobs_s", "tokens_s", "waiting_tokens", "open_items")
LARGEST = ("p50_s", "p95_s", "wait_p95_s", "backlog_s")
MEAN = ("padding_ratio", "busy")


def cores(found: Found) -> dict[str, Any]:
    """Return the cores of every cell, each with its cell."""
    return {"object": "list", "data": [core | {"cell": cell} for cell, page in found.items() for core in page["data"]]}


def models(found: Found) -> dict[str, Any]:
    """Return the versions: each is held by the cores of all cells, and has the open jobs of all."""
    merged: dict[str, dict[str, Any]] = {}
    for page in found.values():
        for model in page["data"]:
            known = merged.setdefault(model["id"], dict(model))
            if known is not model and known != model:
                known |= _model_of_two(known, model)
    return {"object": "list", "data": list(merged.values())}


def _model_of_two(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a version is in two cells together."""
    held = sorted({*one["cores"], *other["cores"]})
    return {
        "cores": held,
        "aliases": sorted({*one["aliases"], *other["aliases"]}),
        "weights": {**other["weights"], **one["weights"]},
        "unfinished_jobs": one["unfinished_jobs"] + other["unfinished_jobs"],
        "state": "draining" if one["state"] == other["state"] == "draining" else "open",
        "waiting_for": one["waiting_for"] or other["waiting_for"],
    }


def scaling(found: Found) -> dict[str, Any]:
    """Return the cores of all cells: sums, and the longest backlog; scalers of one cell read its gauge."""
    seen = list(found.values())
    counts = ("cores", "desired", "asked", "running", "waiting_tokens", "claimed_tokens", "fixed")
    known = [one["backlog_core_s"] for one in seen if one["backlog_core_s"] is not None]
    return {
        "object": "scaling",
        "at": max(one["at"] for one in seen),
        **{name: sum(one[name] for one in seen) for name in counts},
        "backlog_core_s": sum(known) if known else None,
        "backlog_s": _largest(one["backlog_s"] for one in seen),
        "stopped": [core for one in seen for core in one["stopped"]],
    }


def aliases(found: Found) -> dict[str, Any]:
    """Return the aliases; where cells differ, as after a change that did not reach all, one entry for each meaning."""
    listed: list[dict[str, Any]] = []
    for page in found.values():
        listed += [alias for alias in page["data"] if alias not in listed]
    return {"object": "list", "data": sorted(listed, key=lambda alias: str(alias["alias"]))}


def pauses(found: Found) -> dict[str, Any]:
    """Return what is paused; a version or an owner that is paused in several cells once, as in the first of them."""
    listed = (pause for page in found.values() for pause in page["data"])
    return {"object": "list", "data": _by(listed, ("kind", "name"), lambda one, _: dict(one))}


def failure_groups(found: Found) -> dict[str, Any]:
    """Return the failed items of all cells by code, the most first."""
    groups = _by((group for page in found.values() for group in page["data"]), ("code",), _failures_of_two)
    is_whole = all(page["is_whole"] for page in found.values())
    return {"object": "list", "data": sorted(groups, key=lambda group: -int(group["items"])), "is_whole": is_whole}


def _failures_of_two(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    return {name: one[name] + other[name] for name in ("items", "jobs")}


def ready(found: Found, away: Iterable[str]) -> dict[str, Any]:
    """Return the readiness of all: a question is answered if one cell can; a cell that cannot is a red detail."""
    details: dict[str, Any] = {}
    for health in found.values():
        for name, detail in (health["details"] or {}).items():
            known = details.setdefault(name, detail)
            details[name] = {
                "state": "red" if "red" in (known["state"], detail["state"]) else "green",
                "waits_s": max(known["waits_s"], detail["waits_s"]),
                "parts": sorted({*known["parts"], *detail["parts"]}),
            }
    for cell in away:
        details[f"cell {cell}"] = {"state": "red", "waits_s": 0.0, "parts": []}
    return {"status": "ok", "cores": sum(health["cores"] or 0 for health in found.values()), "details": details}


def overview(found: Found, away: Iterable[str]) -> dict[str, Any]:
    """Return how all cells stand: sums, the worst sign, the slowest latency, and a trouble for each that is away."""
    seen = list(found.values())
    troubles = [
        {"part": f"cell {cell}, {each['part']}", "text": each["text"]}
        for cell, one in found.items()
        for each in one["troubles"]
    ]
    troubles += [
        {"part": f"cell {cell}", "text": "it does not answer: its jobs wait there until it does"} for cell in away
    ]
    kept, late = (sum(one["promises"][name] for one in seen) for name in ("kept", "late"))
    early = sum(one["promises"]["early"] for one in seen)
    ended = kept + early + late
    return {
        "object": "overview",
        "at": max(one["at"] for one in seen),
        "forecast": _forecast({cell: one["forecast"] for cell, one in found.items()}),
        "promises": {"kept": kept, "early": early, "late": late, "hit_rate": kept / ended if ended else None},
        "done": {
            span: {name: sum(one["done"][span][name] for one in seen) for name in ("items", "jobs", "failed")}
            for span in ("last_minute", "last_hour")
        },
        "latency": {name: _largest(one["latency"][name] for one in seen) for name in ("p50_s", "p95_s")},
        "lanes": _by((lane for one in seen for lane in one["lanes"]), ("version", "priority"), _lane_of_two),
        "cores": [core | {"cell": cell} for cell, one in found.items() for core in one["cores"]],
        "models": _by((model for one in seen for model in one["models"]), ("version",), _rates_of_two),
        "troubles": troubles,
        "paused": pauses({cell: {"data": one["paused"]} for cell, one in found.items()})["data"],
        "owners": sorted(
            _by((owner for one in seen for owner in one["owners"]), ("owner",), _work_of_two),
            key=lambda owner: -int(owner["tokens"]),
        ),
    }


def _forecast(found: Found) -> dict[str, Any]:
    """Return the forecast of all: each cell has its own backlog, so it is clear when the last one's is."""
    seen = list(found.values())
    sign = max((Sign(one["sign"]) for one in seen), key=WORST.index)
    counts = ("open_items", "waiting_tokens", "items_per_s", "tokens_per_s", "arriving_tokens_per_s")
    clear = [one["clear_in_s"] for one in seen]
    return {
        "sign": sign.value,
        "text": "; ".join(f"cell {cell}: {one['text']}" for cell, one in found.items()),
        **{name: sum(one[name] for one in seen) for name in counts},
        "backlog_s": max(one["backlog_s"] for one in seen),
        "clear_in_s": None if None in clear else max(clear),
    }


def _lane_of_two(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "waiting_tokens": one["waiting_tokens"] + other["waiting_tokens"],
        "oldest_wait_s": max(one["oldest_wait_s"], other["oldest_wait_s"]),
        "backlog_s": _largest((one["backlog_s"], other["backlog_s"])),
    }


def _work_of_two(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    is_counted = None not in (one["items"], other["items"])
    return {
        **{name: one[name] + other[name] for name in ("tokens", "jobs")},
        "items": one["items"] + other["items"] if is_counted else None,
        "oldest_wait_s": max(one["oldest_wait_s"], other["oldest_wait_s"]),
    }


def _rates_of_two(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    summed = ("arriving_items_per_s", "items_per_s", "tokens_per_s")
    largest = ("compute_mean_s", "compute_p95_s", "error_rate", "padding", "core_share")
    return {name: one[name] + other[name] for name in summed} | {
        name: _largest((one[name], other[name])) for name in largest
    }


def _by(
    parts: Iterable[Mapping[str, Any]],
    names: Sequence[str],
    merge: Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Any]],
) -> list[dict[str, Any]]:
    """Merge what has the same names, two at a time."""
    merged: dict[tuple[Any, ...], dict[str, Any]] = {}
    for part in parts:
        key = tuple(part[name] for name in names)
        known = merged.get(key)
        merged[key] = dict(part) if known is None else known | merge(known, part)
    return list(merged.values())


def _largest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def history(found: Found) -> dict[str, Any]:
    """Return the history of all cells: points of the same time are one, and marks name their cell."""
    coarse_s = max((_step_s(page["points"]) for page in found.values()), default=FINE_S)
    grouped: dict[int, list[Mapping[str, Any]]] = {}
    for page in found.values():
        times = set()
        for point in page["points"]:
            time = int(datetime.fromisoformat(point["at"]).timestamp() // coarse_s)
            time += time in times  # two points of one cell are never one
            times.add(time)
            grouped.setdefault(time, []).append(point)
    marks = [mark | {"text": f"cell {cell}: {mark['text']}"} for cell, page in found.items() for mark in page["marks"]]
    points = [_point(grouped[time]) for time in sorted(grouped)]
    return {"object": "history", "points": points, "marks": sorted(marks, key=lambda mark: str(mark["at"]))}


def _step_s(points: Sequence[Mapping[str, Any]]) -> int:
    if len(points) < 2:
        return FINE_S
    first, second = (datetime.fromisoformat(point["at"]).timestamp() for point in points[:2])
    return COARSE_S if second - first > 2 * FINE_S else FINE_S


def _point(points: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    merged: dict[str, Any] = {"at": max(point["at"] for point in points)}
    merged |= {name: sum(point[name] for point in points) for name in SUMMED}
    merged |= {name: _largest(point[name] for point in points) for name in LARGEST}
    for name in MEAN:
        values = [point[name] for point in points if point[name] is not None]
        merged[name] = sum(values) / len(values) if values else None
    return merged
