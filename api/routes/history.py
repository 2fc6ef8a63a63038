"""The history of the service: how it did over the last hours or days, and what was changed meanwhile."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from api.deps import AS_READER, Parts, PartsDep
from api.errors import documented
from corelane.domain.ids import iso_time
from corelane.store.history import Mark, Point

router = APIRouter(prefix="/v1", tags=["fleet"], responses=documented(403, 422, 503))

#: Points in one answer, and the longest time asked for, in minutes: a week is kept.
MOST_POINTS, WEEK = 400, 7 * 24 * 60

#: The oldest point may just be leaving its ring: it is not asked for, in milliseconds.
EDGE_MS = 5_000


class HistoryPoint(BaseModel):
    """How the service did for a while; rates are per second, null where there is nothing to tell."""

    at: str = Field(description="The end of the time that it stands for.")
    items_s: float = Field(description="Items answered.")
    failed_s: float = Field(description="Items that failed.")
    jobs_s: float = Field(description="Jobs that ended.")
    tokens_s: float = Field(description="Tokens read.")
    p50_s: float | None = Field(description="Median time of a job, in seconds.")
    p95_s: float | None = Field(description="95 in 100 jobs took no longer, in seconds.")
    wait_p95_s: float | None = Field(description="95 in 100 jobs waited no longer for a core, in seconds.")
    backlog_s: float | None = Field(description="Time that the cores needed for the waiting work.")
    waiting_tokens: int
    open_items: int
    padding_ratio: float | None = Field(description="Padding's share of the tokens read.")
    busy: float | None = Field(description="Share of time that the cores spent on batches.")


class HistoryMark(BaseModel):
    """Something that was changed."""

    at: str
    kind: str = Field(description="deploy, alias, load, unload, core or calibration.")
    text: str


class HistoryInfo(BaseModel):
    """The history of a time, oldest first."""

    object: Literal["history"] = "history"
    points: list[HistoryPoint]
    marks: list[HistoryMark]


@router.get("/history", dependencies=[AS_READER])
async def get_history(
    parts: PartsDep,
    minutes: Annotated[int, Query(ge=1, le=WEEK, description="How far back.")] = 60,
) -> HistoryInfo:
    """Show how the service did: a point for each ten seconds of the last six hours, or for each five minutes of the
    last week, 400 at most; and what was changed meanwhile.
    """
    _, points, marks = await read_history(parts, minutes)
    return HistoryInfo(
        points=[
            HistoryPoint.model_validate(
                {name: getattr(point, name) for name in HistoryPoint.model_fields if name != "at"}
                | {"at": iso_time(point.at_ms)}
            )
            for point in points
        ],
        marks=[HistoryMark(at=iso_time(mark.at_ms), kind=mark.kind, text=mark.text) for mark in marks],
    )


async def read_history(parts: Parts, minutes: int) -> tuple[int, list[Point], list[Mark]]:
    """Return the time now in milliseconds, and the points and marks of the last minutes."""
    history = parts.history
    now_ms = await parts.link.now_ms()
    since_ms = now_ms - minutes * 60_000 + EDGE_MS
    return now_ms, await history.points(since_ms, MOST_POINTS), await history.marks(since_ms)
