"""The history of the service, as the API returns it and the client reads it."""

from typing import Literal

from pydantic import BaseModel, Field


class HistoryPoint(BaseModel):
    """The service's figures for a stretch of time. Rates are per second; a figure that was not measured is null."""

    at: str = Field(description="The end of the time that it stands for.")
    items_s: float = Field(description="Items answered.")
    failed_s: float = Field(description="Items that failed.")
    jobs_s: float = Field(description="Jobs that ended.")
    tokens_s: float = Field(description="Tokens read.")
    p50_s: float | None = Field(description="Median time of a job, in seconds.")
    p95_s: float | None = Field(description="95 in 100 jobs took no longer, in seconds.")
    wait_p95_s: float | None = Field(description="95 in 100 jobs waited no longer for a core, in seconds.")
    backlog_s: float = Field(description="Time that the cores need for all that waits, without what is paused.")
    waiting_tokens: int = Field(description="Tokens that wait, those in files included.")
    open_items: int
    padding_ratio: float | None = Field(description="Padding's share of the tokens read.")
    busy: float | None = Field(description="Share of time that the cores spent on batches.")


class HistoryMark(BaseModel):
    """Something that was changed."""

    at: str
    kind: str = Field(description="deploy, alias, load, unload, core, calibration or pause.")
    text: str


class HistoryInfo(BaseModel):
    """The history of a time, oldest first."""

    object: Literal["history"] = "history"
    points: list[HistoryPoint]
    marks: list[HistoryMark]
