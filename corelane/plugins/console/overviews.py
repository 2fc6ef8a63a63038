"""The overview, built from Redis: a process makes at most one reading at a time, and one a second.

What waits is divided by the rate at which the cores drain it, measured over the last seconds. Other rates are those of
the last minute: the current sums minus those that the history's keeper noted a minute ago. So all processes show the
same rates.
"""

import asyncio
import math
import time
from collections.abc import Mapping
from typing import Any

import orjson

from corelane.domain.ids import iso_time
from corelane.domain.overview import (
    CoreOverview,
    CoreVersion,
    DoneCount,
    LatencyInfo,
    ModelOverview,
    Overview,
    OwnerWork,
    WaitingInfo,
    device_figures,
    duration,
)
from corelane.domain.pauses import Pauses
from corelane.metrics import definitions as m
from corelane.metrics.series import parse
from corelane.plugins.console.history import MINUTE_AGO, Growth
from corelane.store import keys
from corelane.store.fleet import read_drain_rate
from corelane.store.gauges import Work, count_open_items, read_work
from corelane.store.health_issues import read_cores, read_issues
from corelane.store.link.link import CommonLink, call, pairs, texts, to_ms

#: An overview is reused for this time, in seconds, so that many readers cause one reading a second.
KEPT_S = 0.8

#: Most owners that are listed, and most jobs of an owner whose items are counted.
MOST_OWNERS, COUNTED_OWN_JOBS = 6, 200


class Overviews:
    """Reads the overview for all readers of this process."""

    def __init__(self, link: CommonLink) -> None:
        self._link = link
        self._turn = asyncio.Lock()
        self._last: Overview | None = None
        self._last_s = -math.inf

    async def read(self) -> Overview:
        """Return an overview that is at most a second old. Raises Unavailable if Redis is unreachable."""
        async with self._turn:
            if self._last is None or time.monotonic() - self._last_s > KEPT_S:
                self._last = await read_overview(self._link)
                self._last_s = time.monotonic()
            return self._last


async def read_overview(link: CommonLink) -> Overview:
    """Read how the service stands."""
    now, sums, minute_ago, paused, owners = await link.many(
        [
            ("TIME",),
            ("HGETALL", keys.METRICS),
            MINUTE_AGO,
            ("HGETALL", keys.PAUSED),
            call("owners_with_work", most=MOST_OWNERS, jobs=COUNTED_OWN_JOBS),
        ]
    )
    now_ms, series = to_ms(now), parse({field.decode(): float(amount) for field, amount in pairs(sums)})
    growth = Growth.since(minute_ago, now_ms, series)
    work, cores = await read_work(link), await read_cores(link)
    living = [core for core in cores if "state" in core]
    return Overview(
        at=iso_time(now_ms),
        waiting=waiting_info(count_open_items(series), work, await read_drain_rate(link), len(living)),
        last_minute=DoneCount() if growth is None else done(growth),
        latency=LatencyInfo() if growth is None else latency(growth),
        cores=[core_of(core, work.claimed.get(core["core"], 0)) for core in cores],
        models=[
            model_of(version, work, growth, len(living))
            for version in sorted(work.holders.keys() | work.outstanding.keys())
            if work.holders.get(version) or work.outstanding.get(version)
        ],
        troubles=await read_issues(link, cores, work),
        paused=list(Pauses.decode(texts(paused)).all),
        owners=[
            OwnerWork(
                owner=owner.decode(),
                tokens=int(tokens),
                jobs=int(jobs),
                items=None if items < 0 else int(items),
                oldest_wait_s=int(age_ms) / 1000,
            )
            for owner, tokens, jobs, items, age_ms in owners
        ],
    )


def waiting_info(open_items: int, work: Work, rate: float, living: int) -> WaitingInfo:
    """Return what waits, and how long the cores need for it."""
    tokens, claimed = sum(work.outstanding.values()), sum(work.claimed.values())
    movable = sum(work.movable.values()) + claimed
    seconds = movable / rate if living else None
    waiting = f"{open_items:,} item{'' if open_items == 1 else 's'} wait{'s' if open_items == 1 else ''}"
    if not open_items:
        text = "nothing waits"
    elif not movable:
        text = f"{waiting}, all paused" if tokens else f"{waiting}, and none may begin yet"
    elif seconds is None:
        text = f"{waiting}, and no core lives"
    else:
        text = f"{waiting}, {duration(seconds)} of work" + (", some paused" if sum(work.paused.values()) else "")
    return WaitingInfo(
        text=text,
        open_items=open_items,
        tokens=tokens,
        tokens_per_s=round(rate, 1),
        seconds=None if seconds is None else round(seconds, 3),
    )


def done(growth: Growth) -> DoneCount:
    """Return the work done in the last minute."""
    failed = growth.grown(m.ITEMS, None, "failed")
    items = growth.grown(m.ITEMS, None, "succeeded") + failed
    return DoneCount(items=round(items), jobs=round(growth.grown(m.JOBS_ENDED)), failed=round(failed))


def latency(growth: Growth) -> LatencyInfo:
    """Return how long the jobs of the last minute took."""
    p50, p95 = (growth.histogram(m.JOB_S).quantile(share) for share in (0.5, 0.95))
    return LatencyInfo(p50_s=None if p50 is None else round(p50, 4), p95_s=None if p95 is None else round(p95, 4))


def model_of(version: str, work: Work, growth: Growth | None, cores: int) -> ModelOverview:
    """Return what waits for a version, and its work of the last minute."""
    model = ModelOverview(
        version=version,
        waiting_tokens=work.outstanding.get(version, 0),
        oldest_wait_s=max((age_s for (of, _), age_s in work.waited_s.items() if of == version), default=0.0),
    )
    if growth is None:
        return model
    compute, seconds = growth.histogram(m.COMPUTE_S, version), growth.seconds
    failed = growth.grown(m.ITEMS, version, "failed")
    ended = growth.grown(m.ITEMS, version, "succeeded") + failed
    tokens, padding = growth.grown(m.TOKENS, version), growth.grown(m.PADDING_TOKENS, version, None)
    p95 = compute.quantile(0.95)
    return model.model_copy(
        update={
            "arriving_items_per_s": round(growth.grown(m.ITEMS_SUBMITTED, version) / seconds, 3),
            "items_per_s": round(ended / seconds, 3),
            "tokens_per_s": round(tokens / seconds, 1),
            "padding": round(padding / (tokens + padding), 4) if tokens + padding else None,
            "compute_mean_s": round(compute.sum / compute.count, 6) if compute.count else None,
            "compute_p95_s": None if p95 is None else round(p95, 6),
            "core_share": round(min(1.0, compute.sum / seconds / cores), 4) if cores else None,
            "error_rate": round(failed / ended, 4) if ended else None,
        }
    )


def core_of(core: Mapping[str, Any], claimed: int) -> CoreOverview:
    """Return a core's heartbeat in the form of the overview; without a heartbeat the core is lost."""
    if "state" not in core:
        return CoreOverview(name=core["core"], state="lost")
    models = orjson.loads(core.get("models", "[]"))
    return CoreOverview(
        name=core["core"],
        state=core["state"],
        reasons=orjson.loads(core.get("reasons", "[]")),
        busy=float(core.get("busy", 0)),
        versions=[CoreVersion.model_validate(model, extra="ignore") for model in models],
        memory_bytes=int(core["memory"]) if "memory" in core else None,
        claimed_tokens=claimed,
        items=int(core.get("items", 0)),
        restarts=int(core.get("restarts", 0)),
        device=device_figures(core.get("device", "")),
    )
