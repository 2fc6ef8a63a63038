"""Bulk actions: one action on every job that a filter takes, in bounded steps: the wire format, and the rules."""

from collections import Counter
from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, Field

from corelane.domain.job_filter import JobFilter
from corelane.domain.jobs import Counts, JobStatus
from corelane.domain.wire import Wire


class BulkAction(StrEnum):
    """The change that is made to each job."""

    RETRY = "retry"
    CANCEL = "cancel"


#: Why a job is left as it is, in words; other codes are those of problems.
REASONS = {
    "already_final": "they are final already",
    "not_final": "they are not final yet: wait for them, or cancel them",
    "nothing_to_retry": "all their items were answered",
    "fails_again": "what failed of them would fail again: change these items, and send them as new jobs",
    "already_retried": "they were retried before",
    "items_lost": "they lack their items",
    "not_found": "they were deleted meanwhile",
}


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


def reason_against_cancel(status: JobStatus) -> str | None:
    """Return why a job cannot be canceled."""
    return "already_final" if status.is_final else None


def reason_against_retry(
    status: JobStatus, counts: Counts, *, lasting: int, is_retried: bool, has_items: bool
) -> str | None:
    """Return why a job cannot be retried, if that is known without its items; ``lasting`` would fail again."""
    if not status.is_final:
        return "not_final"
    if counts.succeeded == counts.total > 0:
        return "nothing_to_retry"
    if counts.succeeded + lasting >= counts.total > 0:
        return "fails_again"
    if is_retried:
        return "already_retried"
    return None if has_items else "items_lost"


def count_reasons(codes: Counter[str], details: dict[str, str] | None = None) -> list[BulkReason]:
    """Return the reasons, the most frequent first."""
    known = REASONS | (details or {})
    return [BulkReason(code=code, detail=known.get(code, code), count=count) for code, count in codes.most_common()]
