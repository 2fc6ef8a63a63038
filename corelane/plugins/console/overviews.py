"""The overview, built from Redis: a process makes at most one reading at a time, and one a second.

It also reads every few seconds without a request, so that rates are known when a request comes.
"""

import asyncio
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import orjson

from corelane.domain.health_issues import DISK_FULL, HealthIssue, failure_issues
from corelane.domain.ids import iso_time
from corelane.domain.jobs import Priority
from corelane.domain.overview import (
    CoreOverview,
    CoreVersion,
    DoneInfo,
    ForecastInfo,
    LaneInfo,
    LatencyInfo,
    Overview,
    Sign,
    device_figures,
)
from corelane.domain.pauses import PauseKind
from corelane.errors import Unavailable
from corelane.log import get_logger
from corelane.metrics import definitions as m
from corelane.plugins.console.backlog_forecast import Backlog, BacklogForecast, BacklogWatch, forecast_backlog
from corelane.plugins.console.history import History
from corelane.plugins.console.points import Growth, Point
from corelane.plugins.console.recent import NOW_MS, Recent, count_done, models_of, promises_of, stretches
from corelane.plugins.console.survey import Survey, read_survey
from corelane.store.backlog import RATE_SECONDS, drain_rate
from corelane.store.fleet import Fleet
from corelane.store.health_issues import read_cores, read_issues
from corelane.store.link.link import CommonLink
from corelane.store.scaling import read_stopped

log = get_logger(__name__)

#: An overview is reused for this time, in seconds, so that many readers cause one reading a second.
KEPT_S = 0.8

#: Pause between two readings without a request, in seconds.
PAUSE_S = 5.0

#: How long the history of the last hour is reused, in milliseconds: until there is a new point.
HOUR_KEPT_MS = 10_000

#: Why work waits if its owners are paused. All callers see the forecast, but only admins see which owners.
OWNERS_PAUSED = "an admin has paused its owners"

MINUTE_MS, HOUR_MS = 60_000, 3_600_000

Cores = Sequence[Mapping[str, Any]]


class Overviews:
    """Reads the overview for all readers of this process."""

    def __init__(self, link: CommonLink) -> None:
        self._link = link
        self._fleet, self._history = Fleet(link), History(link)
        self._watch, self._recent = BacklogWatch(), Recent()
        self._turn = asyncio.Lock()
        self._last: Overview | None = None
        self._last_s = -math.inf
        self._hour: Sequence[Point] = ()
        self._hour_ms = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to read at intervals."""
        self._task = asyncio.create_task(self._run(), name="overview")

    async def close(self) -> None:
        """Stop reading."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def read(self, kept_s: float | None = None) -> Overview:
        """Return an overview that is at most a second old. Raises Unavailable if Redis is unreachable."""
        async with self._turn:
            if self._last is None or time.monotonic() - self._last_s > (KEPT_S if kept_s is None else kept_s):
                self._last = await self._read()
                self._last_s = time.monotonic()
            return self._last

    async def _run(self) -> None:
        while True:
            try:
                await self.read(PAUSE_S)
            except Unavailable:
                pass  # the log says so elsewhere
            except Exception:  # the next reading must come
                log.exception("overview_broke")
            await asyncio.sleep(PAUSE_S)

    async def _read(self) -> Overview:
        survey, cores = await read_survey(self._link), await read_cores(self._link)
        self._recent.add(survey.now_ms, survey.series)
        rise = self._recent.rise()
        wrong = await read_issues(self._link, cores)
        waiting = survey.work.outstanding
        is_refusing = any(each.text == DISK_FULL for each in wrong)
        # If Redis refuses writes, every core seems lost.
        stuck = dict.fromkeys(waiting, f"Redis {DISK_FULL}") if is_refusing else await self._stuck(survey)
        issues = [
            *(HealthIssue(version, reason) for version, reason in stuck.items() if not is_refusing),
            *wrong,
            *failure_issues({} if rise is None else failures_of(rise)),
        ]
        done = await self._done(survey)
        living = [core for core in cores if "state" in core]
        known, stopped = {core["core"] for core in cores}, await read_stopped(self._link)
        versions = [version for version, holders in survey.work.holders.items() if holders or waiting[version]]
        return Overview(
            at=iso_time(survey.now_ms),
            forecast=self._forecast(survey, living, stuck, done),
            promises=promises_of(survey.series),
            done=done,
            latency=latency_of(rise),
            lanes=lanes_of(survey),
            cores=[
                *(core_of(core, survey.work.claimed.get(core["core"], 0)) for core in cores),
                *(CoreOverview(name=core, state="stopped") for core in stopped if core not in known),
            ],
            models=models_of(sorted(versions), rise, len(living)),
            troubles=issues,
            paused=list(survey.pauses.all),
            owners=list(survey.owners),
        )

    def _forecast(self, survey: Survey, living: Cores, stuck: Mapping[str, str], done: DoneInfo) -> ForecastInfo:
        speeds = survey.working_speeds
        backlog = Backlog(
            survey.open_items,
            survey.tokens,
            drain_rate(survey.answered[:RATE_SECONDS], speeds),
            sum(tokens for version, tokens in survey.work.movable.items() if version in stuck),
            any(core["state"] == "busy" and survey.work.claimed.get(core["core"]) for core in living),
            max(survey.work.oldest_s.values(), default=0.0),
            list(stuck.values()),
            sum(survey.work.paused.values()),
            list(pauses_of(survey)),
        )
        samples = self._watch.look(survey.now_ms // 1000, survey.tokens, survey.answered)
        forecast = forecast_backlog(backlog, samples)
        return forecast_info(forecast, survey, self._recent.rise(NOW_MS), done)

    async def _stuck(self, survey: Survey) -> dict[str, str]:
        """Return the versions with waiting work that no living core holds, and why."""
        found = {}
        for version, tokens in survey.work.movable.items():
            is_stuck = tokens and not survey.work.holders.get(version)
            if is_stuck and (outlook := await self._fleet.outlook(version)) is not None:
                found[version] = outlook.reason
        return found

    async def _done(self, survey: Survey) -> DoneInfo:
        """Count the work of the last minute and hour: from the history, and from the sums since its last point."""
        now_ms = survey.now_ms
        # The history has a point that this process has not read yet.
        is_behind = bool(self._hour) and survey.before_ms is not None and self._hour[-1].at_ms < survey.before_ms
        if not self._hour or not 0 <= now_ms - self._hour_ms < HOUR_KEPT_MS or is_behind:
            self._hour = await self._history.points(now_ms - HOUR_MS, most=HOUR_MS)
            self._hour_ms = now_ms
        points = [point for point in self._hour if point.at_ms <= (survey.before_ms or now_ms)]
        found = stretches(points, now_ms, survey.series, survey.before_ms, survey.before)
        return DoneInfo(
            last_minute=count_done(found, now_ms - MINUTE_MS), last_hour=count_done(found, now_ms - HOUR_MS)
        )


def pauses_of(survey: Survey) -> Iterator[str]:
    """Yield the pauses that hold up work, in words."""
    work, owners = survey.work, survey.pauses.names(PauseKind.OWNER)
    for pause in survey.pauses.all:
        if pause.kind is PauseKind.MODEL and work.paused.get(pause.name):
            yield f"{pause.subject} {pause.told}"
    models = survey.pauses.names(PauseKind.MODEL)
    if owners and any(tokens and version not in models for version, tokens in work.held_up.items()):
        yield OWNERS_PAUSED


def forecast_info(forecast: BacklogForecast, survey: Survey, rise: Growth | None, done: DoneInfo) -> ForecastInfo:
    """Return the forecast and the current rates; its text says what an idle service answered in the last minute."""
    text, answered = forecast.text, done.last_minute.items
    if forecast.sign is Sign.IDLE and answered:
        text = f"{text}; {answered:,} item{'s' * (answered != 1)} answered in the last minute"
    items = 0.0 if rise is None else (rise.grown(m.ITEMS, None, "succeeded") + rise.grown(m.ITEMS, None, "failed"))
    seconds = survey.answered[:RATE_SECONDS]
    return ForecastInfo(
        sign=forecast.sign,
        text=text,
        open_items=survey.open_items,
        waiting_tokens=sum(survey.work.outstanding.values()),
        backlog_s=round(forecast.backlog_s, 3),
        clear_in_s=None if forecast.clear_in_s is None else round(forecast.clear_in_s, 3),
        items_per_s=0.0 if rise is None else round(items / rise.seconds, 3),
        tokens_per_s=round(sum(seconds) / max(1, len(seconds)), 1),
        arriving_tokens_per_s=round(forecast.arriving_tokens_per_s, 1),
    )


def failures_of(rise: Growth) -> dict[str, tuple[int, int]]:
    """Return for each version how many items failed, and how many failed or succeeded."""
    failed = {version: int(rise.grown(m.ITEMS, version, "failed")) for version, _ in rise.now.counters.get(m.ITEMS, {})}
    return {each: (count, count + int(rise.grown(m.ITEMS, each, "succeeded"))) for each, count in failed.items()}


def latency_of(rise: Growth | None) -> LatencyInfo:
    """Return how long the jobs of the last minute took."""
    if rise is None:
        return LatencyInfo()
    jobs = rise.histogram(m.JOB_S)
    p50, p95 = (jobs.quantile(share) for share in (0.5, 0.95))
    return LatencyInfo(p50_s=None if p50 is None else round(p50, 4), p95_s=None if p95 is None else round(p95, 4))


def lanes_of(survey: Survey) -> list[LaneInfo]:
    """Return the waiting work, by version and priority. A version's lanes are in the order in which they are served."""
    ranks, found, lanes = list(Priority), list[LaneInfo](), survey.lanes
    movable, outstanding = survey.work.movable, survey.work.outstanding
    for version in sorted({version for version, _ in lanes}):
        speed = sum(survey.work.speeds.get(core, 0.0) for core in survey.work.holders.get(version, ()))
        ahead = 0
        for priority in ranks:
            tokens = lanes.get((version, priority.value))
            if tokens is None:
                continue
            ahead += tokens * movable[version] // outstanding[version]
            lane = LaneInfo(
                version=version,
                priority=priority,
                waiting_tokens=tokens,
                oldest_wait_s=round(survey.work.waited_s.get((version, priority.value), 0.0), 3),
                backlog_s=round(ahead / speed, 3) if speed and movable[version] else None,
            )
            found.append(lane)
    return found


def core_of(core: Mapping[str, Any], claimed: int) -> CoreOverview:
    """Return a core's heartbeat in the form of the overview; without a heartbeat the core is lost."""
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
