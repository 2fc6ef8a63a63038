"""The forecast of a job or a batch, as a dry run returns it: what it would be, take and cost, and when it would end."""

from typing import Literal

from pydantic import BaseModel, Field

from corelane.domain.batches import BatchError
from corelane.domain.jobs import ItemError
from corelane.domain.usage import Cost


class Refusal(BaseModel):
    """Why the job would be refused if it were submitted now."""

    code: str = Field(description="The code of the problem.")
    detail: str
    retry_after_s: int | None = Field(None, description="When it would be taken, in seconds, as `Retry-After` says.")
    earliest_feasible_s: int | None = Field(
        None, description="With `deadline_infeasible`: the smallest `expires_in_s` that can be met now."
    )


class WorkForecast(BaseModel):
    """The size of some work, and the time when it would be done."""

    items: int = Field(description="Its items.")
    windows: int = Field(description="Windows that the model would read, estimated.")
    tokens: int = Field(description="Tokens of these windows, estimated.")
    core_s: float | None = Field(
        None, description="Core seconds it would use; null while neither items nor passes of the model were measured."
    )
    cost: Cost | None = Field(None, description="What these would cost now; null without one currency for all cores.")
    finish_at: str | None = Field(None, description="When it would be done; null until speed is measured.")
    earliest_at: str | None = Field(None, description="Early end of the interval around that.")
    latest_at: str | None = Field(None, description="Late end of it.")
    late: bool = Field(False, description="Whether it is expected to end after its `expires_in_s`.")
    refusal: Refusal | None = Field(None, description="Why it would be refused now; null if it would be taken.")
    note: str = Field(description="How sure this is.")


class JobForecast(WorkForecast):
    """What a job with `dry_run` returns: nothing of it is kept, charged or processed."""

    object: Literal["job.forecast"] = "job.forecast"
    model: str = Field(description="The model version that would be asked.")
    bad_items: int = Field(0, description="With `invalid_items: fail`: items that would fail alone; not in `items`.")
    errors: list[ItemError] = Field(default_factory=list, description="The first of their errors.")
    position: int = Field(ge=0, description="Unfinished jobs of its priority or higher that it would wait behind.")
    tokens_ahead: int = Field(ge=0, description="Estimated tokens that would be answered before it is done.")


class BatchForecast(WorkForecast):
    """What a batch with `dry_run` returns: sums over the jobs of its lines."""

    object: Literal["batch.forecast"] = "batch.forecast"
    input_file_id: str
    lines: int = Field(description="Lines of the file, without blank ones.")
    bad_lines: int = Field(description="Lines that would have an error in the error file.")
    errors: list[BatchError] = Field(default_factory=list, description="The first of these errors.")
    jobs: list[JobForecast] = Field(description="A forecast for each model and options.")
