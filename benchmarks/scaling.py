"""Whether one Redis keeps many cores busy: 1, 4, 16 and 64 simulated cores, in process, without HTTP.

    nice -n 5 python benchmarks/scaling.py [--quick]

*Queue alone*: jobs of 1,000 tiny items are submitted through JobStore while the cores stand still, then drained by
cores whose batches take no time: items/s of the drain, CPU of Redis per item (INFO cpu), and, in a second and smaller
round, the time of each script inside Redis (SLOWLOG). *Busy*: batches of 16 items take 20 or 50 ms; the share of its
time that each core spends in them while work waits. *Idle claims*: what the claim of an idle core costs inside Redis by
the number of owners who wait, with 64 other cores, where it finds nothing (what waits is for another version) and where
it finds work.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import redis

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from benchmarks.runs import is_quick, keep  # noqa: E402
from benchmarks.simulated_cores import (  # noqa: E402
    Cost,
    Plan,
    announce,
    own_redis,
    running_squad,
    simulated_item,
    submit,
    wait_until_final,
    with_submitter,
)
from corelane.domain.dispatch import LEAST_TOKENS  # noqa: E402
from corelane.engine.null import NullRunner  # noqa: E402
from corelane.settings import Settings  # noqa: E402
from corelane.store.dispatch import Dispatch, ExchangeRequest, Room  # noqa: E402
from corelane.store.link.library import read_library  # noqa: E402
from corelane.submitting.submitter import Submitter  # noqa: E402

CORES = (1, 4, 16, 64)
PER_JOB = 1_000

#: Items of one drain, and of the round in which every call is timed: the log of calls must hold them all.
ITEMS, TIMED_ITEMS = 100_000, 20_000
LOG_CALLS = 100_000

#: Seconds of a batch, as of 1,000 tokens on a core that is fast, and on one like a CPU's, and the cores to simulate.
#: The Python of 64 cores shares this machine's CPUs: the slower batch tells Redis' limit from the simulation's.
BATCHES = ((0.02, CORES), (0.05, (64,)))
ROWS = 16

#: Cores run in before they are watched, and are watched, in seconds.
RUN_IN_S, WATCHED_S = 1.0, 4.0

#: Claims of which the median is taken; the work of one owner is enough for all.
CLAIMS = 50

#: Owners who wait, each with as much.
OWNERS = (1, 10, 100)

#: Rounds, items, items of the timed round, cores and owners.
FULL = (3, ITEMS, TIMED_ITEMS, CORES, OWNERS)


def held_by(count: int, version: str) -> dict[int, tuple[str, ...]]:
    """So many cores with one version."""
    return dict.fromkeys(range(count), (version,))


def load_up(settings: Settings, version: str, jobs: int, owners: int = 1, per_job: int = PER_JOB) -> None:
    """Submit jobs of tiny items, one after another."""
    items = [simulated_item(LEAST_TOKENS, LEAST_TOKENS)] * per_job

    async def send(submitter: Submitter) -> None:
        for n in range(jobs):
            await submit(submitter, version, items, f"owner-{n % owners}")

    with_submitter(settings, send)


def redis_cpu_s(raw: redis.Redis) -> float:
    """CPU time of Redis so far, all its threads."""
    used: Any = raw.info("cpu")
    return float(used["used_cpu_user"] + used["used_cpu_sys"])


def log_calls(raw: redis.Redis, *, wanted: bool) -> None:
    """Have Redis keep the time of every call, or of none."""
    raw.config_set("slowlog-max-len", LOG_CALLS)
    raw.config_set("slowlog-log-slower-than", 0 if wanted else -1)
    raw.slowlog_reset()


def function_times(raw: redis.Redis, items: int) -> dict[str, dict[str, float]]:
    """Of each function, from the log of calls: how often it ran per 1,000 items, and its median time in Redis."""
    prefix = f"{read_library().name}_"
    took: dict[str, list[int]] = {}
    calls: Any = raw.slowlog_get(LOG_CALLS)
    for call in calls:
        words = bytes(call["command"]).split()
        if words[0].upper() == b"FCALL":
            took.setdefault(words[1].decode().removeprefix(prefix), []).append(call["duration"])
    return {
        name: {"calls_per_1000_items": round(1000 * len(each) / items, 2), "us": float(statistics.median(each))}
        for name, each in sorted(took.items())
    }


def drained(url: str, cores: int, items: int, *, timed: bool) -> dict[str, Any]:
    """One backlog submitted and drained by cores whose batches take no time."""
    plan = Plan(url, held_by(cores, NullRunner.version))
    with redis.Redis.from_url(url) as raw:
        raw.flushall()
        log_calls(raw, wanted=timed)
        with running_squad(plan) as squad:
            cpu = [redis_cpu_s(raw)]
            load_up(plan.settings, NullRunner.version, items // PER_JOB)
            cpu.append(redis_cpu_s(raw))
            began = time.perf_counter()
            squad.go()
            wait_until_final(raw, 120)
            elapsed = time.perf_counter() - began
            cpu.append(redis_cpu_s(raw))
            if timed:
                return function_times(raw, items)
    return {
        "items_per_s": round(items / elapsed),
        "redis_us_per_item": round((cpu[2] - cpu[0]) / items * 1e6, 2),
        "submit_us_per_item": round((cpu[1] - cpu[0]) / items * 1e6, 2),
        "drain_us_per_item": round((cpu[2] - cpu[1]) / items * 1e6, 2),
        "redis_busy": round((cpu[2] - cpu[1]) / elapsed, 2),
    }


def busy(url: str, cores: int, batch_s: float) -> dict[str, Any]:
    """How busy cores are while work waits, with batches of a fixed time."""
    version = "paced@1"
    plan = Plan(url, held_by(cores, version), Cost(batch_s))
    items = 1.5 * cores * ROWS * (RUN_IN_S + WATCHED_S) / batch_s
    with redis.Redis.from_url(url) as raw:
        raw.flushall()
        log_calls(raw, wanted=False)
        with running_squad(plan) as squad:
            load_up(plan.settings, version, max(1, round(items / PER_JOB)))
            squad.go()
            time.sleep(0.2 if is_quick() else RUN_IN_S)
            before, cpu, began = squad.readings(), redis_cpu_s(raw), time.perf_counter()
            time.sleep(0.3 if is_quick() else WATCHED_S)
            after, elapsed = squad.readings(), time.perf_counter() - began
            used = redis_cpu_s(raw) - cpu
    shares = [(after[core].busy_s - before[core].busy_s) / elapsed for core in after]
    done = sum(after[core].items - before[core].items for core in after)
    batches = sum(after[core].batches - before[core].batches for core in after)
    return {
        "busy_mean": round(statistics.mean(shares), 3),
        "busy_least": round(min(shares), 3),
        "items_per_s": round(done / elapsed),
        "of_the_possible": round(done / elapsed / (cores * ROWS / batch_s), 3),
        "items_per_batch": round(done / max(batches, 1), 1),
        "redis_busy": round(used / elapsed, 2),
        "redis_us_per_item": round(1e6 * used / max(done, 1), 1),
    }


def claim_us(raw: redis.Redis, settings: Settings, version: str, *, finds: bool) -> float:
    """Median time in Redis of a claim of a core that holds nothing; each by another core, so that none has work."""
    raw.slowlog_reset()
    for n in range(CLAIMS):
        dispatch = Dispatch(settings, f"idle/{n}")
        claim = dispatch.exchange(
            ExchangeRequest(versions=[version], room=Room(settings.claim_tokens), linger=True, idle=True)
        ).claim
        if (claim is not None) is not finds:
            raise RuntimeError("the lanes do not hold what this measures")
        dispatch.close()
    return function_times(raw, CLAIMS)["claim"]["us"]


def idle_claims(url: str, owners: int) -> dict[str, float]:
    """Time the claim of an idle core beside 64 others, with so many owners waiting."""
    plan = Plan(url, held_by(64, "waits@1"))
    with redis.Redis.from_url(url) as raw:
        raw.flushall()
        log_calls(raw, wanted=True)
        for core in plan.cores:
            announce(plan.settings, f"sim/{core}", "waits@1")
        load_up(plan.settings, "waits@1", owners, owners, per_job=128 * 32)
        lanes = sum(1 for _ in raw.scan_iter("cl:line:*", count=1000))
        return {
            "owners": owners,
            "lanes": lanes,
            "finds_nothing_us": claim_us(raw, plan.settings, "other@1", finds=False),
            "finds_work_us": claim_us(raw, plan.settings, "waits@1", finds=True),
        }


def medians(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the median of every figure."""
    return {name: statistics.median(run[name] for run in runs) for name in runs[0]}


def show(title: str, rows: Mapping[Any, Mapping[str, Any]]) -> None:
    """Print a table."""
    columns = list(next(iter(rows.values())))
    print(f"\n{title}\n{'':>12}" + " ".join(f"{name:>19}" for name in columns))
    for name, row in rows.items():
        print(f"{name:>12}" + " ".join(f"{row[column]!s:>19}" for column in columns), flush=True)


def main() -> int:
    """Measure and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round of few cores, few items, and no figures kept")
    parser.parse_args()
    rounds, items, timed, counts, owners = (1, 2_000, 2_000, (1,), (2,)) if is_quick() else FULL
    with own_redis() as url:
        alone = [{cores: drained(url, cores, items, timed=False) for cores in counts} for _ in range(rounds)]
        queue = {cores: medians([each[cores] for each in alone]) for cores in counts}
        show("queue alone", queue)
        scripts = {cores: drained(url, cores, timed, timed=True) for cores in counts}
        shown = {
            cores: {name: each[name]["us"] for name in ("submit", "claim", "commit")} for cores, each in scripts.items()
        }
        show("µs in Redis by function", shown)
        kept_busy = {
            f"{cores}, {1000 * batch_s:.0f} ms": busy(url, cores, batch_s)
            for batch_s, each in BATCHES[:rounds]
            for cores in (counts if is_quick() else each)
        }
        show("cores, time of a batch", kept_busy)
        claims = {count: idle_claims(url, count) for count in owners}
        show("an idle core's claim, 64 cores", claims)
    figures = {"queue_alone": queue, "scripts": scripts, "busy": kept_busy, "idle_claims": claims}
    keep("scaling", figures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
