"""The overview, built of what Redis knows: at most one reading at a time and one a second in a process."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from corelane.domain.drain import Backlog, BacklogWatch, DrainForecast, forecast_drain
from corelane.domain.forecast import drain_rate
from corelane.domain.ids import iso_time
from corelane.domain.jobs import Priority
from corelane.domain.overview import (
    CoreOverview,
    CoreVersion,
    ForecastInfo,
    LaneInfo,
    Overview,
    TroubleInfo,
    device_figures,
)
from corelane.domain.troubles import Trouble, core_troubles, delivery_troubles, memory_troubles, overdue_troubles
from corelane.store.deliveries.log import DeliveryLog
from corelane.store.fleet import Fleet
from corelane.store.jobs.store import RATE_SECONDS
from corelane.store.link.link import CommonLink
from corelane.store.overdue import CARRIERS, only_overdue
from corelane.store.survey import Survey, read_survey

#: An overview is shown again for so long, in seconds: many readers a second cost one reading.
KEPT_S = 0.8

Cores = Sequence[Mapping[str, Any]]


class Overviews:
    """Reads the overview for all who ask this process."""

    def __init__(self, link: CommonLink) -> None:
        self._link = link
        self._fleet, self._deliveries = Fleet(link), DeliveryLog(link)
        self._watch = BacklogWatch()
        self._turn = asyncio.Lock()
        self._last: Overview | None = None
        self._last_s = 0.0

    async def read(self) -> Overview:
        """Return an overview that is at most a second old. Raises Unavailable if Redis is away."""
        async with self._turn:
            if self._last is None or time.monotonic() - self._last_s > KEPT_S:
                self._last = await self._read()
                self._last_s = time.monotonic()
            return self._last

    async def _read(self) -> Overview:
        survey, cores = await read_survey(self._link), await self._fleet.cores()
        stuck = await self._stuck(survey)
        forecast = self._forecast(survey, cores, stuck)
        items_per_token = survey.open_items / survey.tokens if survey.tokens > 0 else 0.0
        return Overview(
            at=iso_time(survey.now_ms),
            forecast=ForecastInfo(
                sign=forecast.sign,
                text=forecast.text,
                open_items=survey.open_items,
                waiting_tokens=sum(survey.waiting.values()) + survey.unfed,
                backlog_s=round(forecast.backlog_s, 3),
                clear_in_s=None if forecast.clear_in_s is None else round(forecast.clear_in_s, 3),
                items_per_s=round(forecast.tokens_per_s * items_per_token, 3),
                tokens_per_s=round(forecast.tokens_per_s, 1),
                arriving_tokens_per_s=round(forecast.arriving_tokens_per_s, 1),
            ),
            lanes=lanes_of(survey),
            cores=[core_of(core, survey.held.get(core["core"], 0)) for core in cores],
            troubles=[TroubleInfo(part=each.part, text=each.text) for each in await self._troubles(cores, stuck)],
        )

    def _forecast(self, survey: Survey, cores: Cores, stuck: Mapping[str, str]) -> DrainForecast:
        held_now = [core for core in cores if core.get("state") == "busy" and survey.held.get(core["core"])]
        oldest_ms = min((lane.oldest_ms for lane in survey.lanes), default=survey.now_ms)
        backlog = Backlog(
            survey.open_items,
            survey.tokens,
            drain_rate(survey.answered[:RATE_SECONDS], survey.working_speeds or list(survey.speeds.values())),
            sum(survey.waiting.get(version, 0) for version in stuck),
            bool(held_now),
            (survey.now_ms - oldest_ms) / 1000,
            list(stuck.values()),
        )
        return forecast_drain(backlog, self._watch.look(survey.now_ms // 1000, survey.tokens, survey.answered))

    async def _stuck(self, survey: Survey) -> dict[str, str]:
        """Return the versions with waiting work that no living core holds, and why."""
        found = {}
        for version, holders in survey.holders.items():
            if not holders and (outlook := await self._fleet.outlook(version)) is not None:
                found[version] = outlook.reason
        return found

    async def _troubles(self, cores: Cores, stuck: Mapping[str, str]) -> list[Trouble]:
        states = {core["core"]: (core.get("state", "lost"), orjson.loads(core.get("reasons", "[]"))) for core in cores}
        _, _, dead, circuits = await self._deliveries.counts()
        [info] = await self._link.many([("INFO", "memory")])
        memory = dict(line.split(b":", 1) for line in info.splitlines() if b":" in line)
        return [
            *core_troubles(states),
            *(Trouble(version, reason) for version, reason in stuck.items()),
            *overdue_troubles(only_overdue(await self._deliveries.waits()), CARRIERS),
            *delivery_troubles(dead, circuits),
            *memory_troubles(int(memory.get(b"used_memory", 0)), int(memory.get(b"maxmemory", 0))),
        ]


def lanes_of(survey: Survey) -> list[LaneInfo]:
    """Return what waits, by version and priority; a lane is served after those of its version that go before it."""
    found = []
    for lane in sorted(survey.lanes, key=lambda lane: (lane.version, lane.priority)):
        own = [each for each in survey.lanes if each.version == lane.version and each.priority <= lane.priority]
        speeds = [survey.speeds[core].mean for core in survey.holders[lane.version] if core in survey.speeds]
        found.append(
            LaneInfo(
                version=lane.version,
                priority=list(Priority)[lane.priority],
                waiting_tokens=lane.tokens,
                oldest_wait_s=round(max(0, survey.now_ms - lane.oldest_ms) / 1000, 3),
                backlog_s=round(sum(each.tokens for each in own) / sum(speeds), 3) if speeds else None,
            )
        )
    return found


def core_of(core: Mapping[str, Any], claimed: int) -> CoreOverview:
    """Return a core's heartbeat for the overview; without one the core is lost."""
    if "state" not in core:
        return CoreOverview(name=core["core"], state="lost")
    return CoreOverview(
        name=core["core"],
        state=core["state"],
        reasons=orjson.loads(core.get("reasons", "[]")),
        busy=float(core.get("busy", 0)),
        versions=[
            CoreVersion.model_validate(model, extra="ignore") for model in orjson.loads(core.get("models", "[]"))
        ],
        memory_bytes=int(core["memory"]) if "memory" in core else None,
        claimed_tokens=claimed,
        items=int(core.get("items", 0)),
        restarts=int(core.get("restarts", 0)),
        device=device_figures(core.get("device", "")),
    )
