"""The figures of a soak run: its rows, how far each figure grew, and the table of them."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import combinations
from pathlib import Path
from statistics import mean, median, quantiles
from typing import Any

from corelane.domain.jobs import DEFAULT_TASK
from tests.soak.work import OPEN, Work
from tests.tools.fleet import Fleet, descendants

MB = 1 << 20

#: Keys that Redis holds by intent: of idempotency keys for a day, of jobs that are gone a week, of batches as files.
REMEMBERED = ("once", "gone", "batch")

#: How far a figure may grow in any case: by this share of it, or by so much of its last word. A part has a connection
#: more for each caller that is served just then.
SHARE, ROOM = 0.05, {"MB": 5.0, "files": OPEN, "clients": OPEN, "threads": 3.0, "keys": 100.0, "fragmentation": 0.1}

Row = dict[str, float]


def read_work(work: Work, seconds: float) -> Row:
    """Return what was done in so many seconds, and how long callers waited for it."""
    done, work.done = work.done, []
    row = {"done a second": len(done) / seconds, "items a second": sum(items for _, _, items in done) / seconds}
    for name, kind in (("question", DEFAULT_TASK), ("embedding", "feature-extraction")):
        took = sorted(took for each, took, _ in done if each == kind) or [math.nan]
        row |= {f"{name} p{share}, s": took[len(took) * share // 100] for share in (50, 95, 99)}
    return row


def read_processes(fleet: Fleet) -> Row:
    """Return memory, open files and threads of each part with all below it; and what its folders take."""
    pids = {name: [fleet.pid_of(name), *descendants(fleet.pid_of(name))] for name in [*fleet.names, "redis"]}
    row: Row = {}
    for name, found in (pids | {"serve": [fleet.process.pid]}).items():
        folders = [Path(f"/proc/{pid}") for pid in found]
        memory = Counter[str]()
        for line in "".join((folder / "smaps_rollup").read_text() for folder in folders).splitlines():
            memory[line.split()[0]] += int(line.split()[1]) if line.endswith("kB") else 0
        row |= {f"{name} RSS": memory["Rss:"] / 1024, f"{name} PSS MB": memory["Pss:"] / 1024}
        row[f"{name} files"] = sum(len([*(folder / "fd").iterdir()]) for folder in folders)
        row[f"{name} threads"] = sum(len([*(folder / "task").iterdir()]) for folder in folders)
    row["redis PSS"] = row.pop("redis PSS MB")  # judged by its parts: what Redis uses, and fragmentation
    for name in ("files", "redis"):
        row[f"disk {name}"] = 0
        for path in (fleet.data / name).rglob("*"):
            with suppress(FileNotFoundError):
                row[f"disk {name}"] += path.stat().st_blocks * 512 / MB
    return row


def read_redis(raw: Any) -> Row:
    """Return what Redis holds, without what it remembers by intent, and that by itself."""
    kept, info, memory = defaultdict[str, list[str]](list), raw.info(), raw.memory_stats()
    for key in raw.scan_iter(count=1000):
        kept[key.split(":")[1] if key.startswith("cl:") else ""].append(key)
    by_intent = [kept.pop(name) for name in REMEMBERED if name in kept]
    count = sum(map(len, by_intent))
    remembered = sum(len(keys) * mean(raw.memory_usage(key) or 0 for key in keys[:200]) for keys in by_intent)
    remembered += memory["overhead.db.hashtable.lut"] * count / memory["keys.count"]  # no key's size has its place
    return {
        "redis used MB": (info["used_memory"] - remembered) / MB,
        "redis keys": sum(map(len, kept.values())),
        "redis remembered": count,
        "redis fragmentation": info["mem_fragmentation_ratio"],
        "redis clients": info["connected_clients"],
    }


def growth(values: Sequence[float]) -> float:
    """Return how far a figure grows in all, by Theil and Sen: a quarter of the rows may be off."""
    slopes = [(later - earlier) / (b - a) for (a, earlier), (b, later) in combinations(enumerate(values), 2)]
    return median(slopes) * (len(values) - 1)


def grown(rows: Sequence[Row]) -> list[str]:
    """Return the figures that grow by more than their room and by more than twice their noise, after a quarter."""
    rest, found = rows[len(rows) // 4 :], []
    for name in [name for name in rows[0] if name.split()[-1] in ROOM]:
        values = [row[name] for row in rest]
        by = growth(values)
        lower, _, upper = quantiles([value - by * n / (len(values) - 1) for n, value in enumerate(values)], n=4)
        if by > max(ROOM[name.split()[-1]], SHARE * median(values), 2 * (upper - lower)):
            found.append(f"{name} grew by {by:.1f}")
    return found


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the table in Markdown: medians of eight periods, and the growth after the first quarter."""
    step = math.ceil(len(rows) / 8)
    parts = [rows[at : at + step] for at in range(0, len(rows), step)]
    yield " | ".join(["| until minute", *(f"{part[-1]['minute']:.0f}" for part in parts), "growth |"])
    yield "|---" * (len(parts) + 2) + "|"
    for name in rows[0]:
        medians = [f"{median(row[name] for row in part):.3g}" for part in parts]
        yield " | ".join([f"| {name}", *medians, f"{growth([row[name] for row in rows[len(rows) // 4 :]]):+.3g} |"])
