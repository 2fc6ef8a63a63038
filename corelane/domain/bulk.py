"""Bulk actions: one action on every job that a filter matches, in bounded steps. The wire format."""

from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, Field

from corelane.domain.job_filter import JobFilter
from corelane.domain.wire import Wire


class BulkAction(StrEnum):
    """The change that is made to each job."""

    RETRY = "retry"
    CANCEL = "cancel"


class BulkRequest(Wire):
    """An action on every job that a filter takes."""

    action: BulkAction
    filter: JobFilter = Field(description="Which jobs; the fields of `GET /v1/jobs`, at least one of them.")
    dry_run: bool = Field(False, strict=True, description="Change nothing, and tell what would be done.")
    after: str | None = Field(None, max_length=40, description="Cursor: the `next` of the step before.")


class BulkJob(BaseModel):
    """One job that the action was done to, or would be."""

    id: str
    retry: str | None = Field(None, description="The job that retries it.")


class BulkReason(BaseModel):
    """Jobs that are left as they are, and why."""

    code: str
    detail: str
    count: int


class BulkResult(BaseModel):
    """The jobs that one step changed, or with `dry_run` would change."""

    object: Literal["bulk_result"] = "bulk_result"
    action: BulkAction
    dry_run: bool
    matched: int = Field(description="Jobs of this step that the filter takes.")
    done: int = Field(description="Those the action was done to, or would be.")
    skipped: list[BulkReason] = Field(description="The others, by reason.")
    jobs: list[BulkJob] = Field(description="The jobs that were counted as done.")
    has_more: bool = Field(description="Whether more jobs may follow: send the request again with `after`.")
    next: str | None = Field(description="Cursor of the next step.")
