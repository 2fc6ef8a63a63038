"""The wire format of files and batches: that of OpenAI's API, so that its stock client works; times in whole seconds.

A batch is a file of requests, one a line. Its results are a file of replies and a file of errors.
"""

import re
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, Field

from corelane.domain.jobs import Metadata, Webhook
from corelane.domain.usage import BatchUsage
from corelane.domain.wire import Wire, at_most

#: The purpose of uploaded files, of a batch's lines and of what an item names; and of files that a batch writes.
Upload = Literal["batch", "user_data"]
Purpose = Literal[Upload, "batch_output"]

#: Seconds in a unit of a completion window, and the longest window.
WINDOW_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 24 * 3600}
LONGEST_WINDOW_S = 30 * 24 * 3600

#: The endpoint that a batch started on the console asks.
ENDPOINT = "/v1/answers"

BatchStatus = Literal[
    "validating", "failed", "in_progress", "finalizing", "completed", "expired", "cancelling", "cancelled"
]

#: The final statuses: a batch in one of them does not change any more.
FINAL = frozenset(("failed", "completed", "expired", "cancelled"))

#: The events of a batch: it is final, with the status after the dot.
BatchEvent = Literal["batch.completed", "batch.failed", "batch.cancelled", "batch.expired"]


def window_s(text: str) -> int:
    """Return the seconds of a completion window, such as 24h; raise ValueError if it is malformed."""
    found = re.fullmatch(r"([1-9][0-9]{0,6})([smhd])", text)
    seconds = int(found[1]) * WINDOW_UNITS[found[2]] if found else 0
    if not 0 < seconds <= LONGEST_WINDOW_S:
        raise ValueError("must be a number and its unit, s, m, h or d, of at most 30d, as in 24h")
    return seconds


def _a_window(text: str) -> str:
    window_s(text)
    return text


class ExpiresAfter(Wire):
    """The time after which a file is deleted automatically."""

    anchor: Literal["created_at"] = Field(description="The start of the seconds.")
    seconds: int = Field(ge=3600, le=2_592_000, description="An hour to 30 days.")


class FileObject(BaseModel):
    """A file that was uploaded, or that a batch wrote."""

    id: str
    object: Literal["file"] = "file"
    bytes: int
    created_at: int
    expires_at: int | None = Field(None, description="When it is deleted automatically.")
    filename: str
    purpose: Purpose
    status: Literal["processed"] = "processed"


class FileList(BaseModel):
    """One page of files."""

    object: Literal["list"] = "list"
    data: list[FileObject]
    first_id: str | None = None
    last_id: str | None = None
    has_more: bool = False


class FileDeleted(BaseModel):
    """A deleted file."""

    id: str
    object: Literal["file"] = "file"
    deleted: Literal[True] = True


class BatchWebhook(Webhook):
    """The URL that a batch's event is posted to, signed as those of jobs."""

    events: Annotated[tuple[BatchEvent, ...], Field(min_length=1, max_length=4), at_most(4)] = Field(  # type: ignore[assignment]  # other events
        get_args(BatchEvent), description="Events that are posted, once each; all if left out. A batch has one of them."
    )


class BatchRequest(Wire):
    """The body of ``POST /v1/batches``."""

    input_file_id: str | None = Field(None, max_length=64, description="An uploaded file of the purpose `batch`.")
    requests: list[dict[str, Any]] | None = Field(
        None, max_length=10_000_000, description="In place of a file: its lines; `custom_id` and `body` suffice."
    )
    endpoint: str = Field(max_length=100, description="The `url` of every line, as `/v1/embeddings`.")
    model: str | None = Field(None, min_length=1, max_length=200, description="The model of lines that name none.")
    completion_window: Annotated[str, AfterValidator(_a_window)] = Field(
        "24h", description="Lines not answered within it expire: `24h`, or another number of s, m, h or d up to 30d."
    )
    metadata: Metadata | None = Field(None, description="Up to 16 texts kept with the batch.")
    output_expires_after: ExpiresAfter | None = Field(
        None, description="When the files that the batch writes are deleted, counted from when they are written."
    )
    webhook: BatchWebhook | None = Field(None, description="Where to post the batch's end.")


class RequestCounts(BaseModel):
    """Lines by outcome, live while the batch runs; expired and cancelled lines are only in the total."""

    total: int = 0
    completed: int = 0
    failed: int = 0


class BatchError(BaseModel):
    """The error of a failed batch, or of one of its lines."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


class BatchErrors(BaseModel):
    """The errors of a failed batch; the first ones if there are many."""

    object: Literal["list"] = "list"
    data: list[BatchError]


class Batch(BaseModel):
    """One batch and its progress."""

    id: str
    object: Literal["batch"] = "batch"
    endpoint: str
    errors: BatchErrors | None = None
    input_file_id: str
    completion_window: str
    status: BatchStatus
    output_file_id: str | None = None
    error_file_id: str | None = None
    created_at: int
    in_progress_at: int | None = None
    expires_at: int
    finalizing_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    expired_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None
    request_counts: RequestCounts
    metadata: dict[str, str] | None = None
    jobs: list[str] = Field(default_factory=list, description="The jobs of its lines, one for each model and options.")
    usage: BatchUsage | None = Field(None, description="What its jobs took so far; null before there are any.")


class BatchList(BaseModel):
    """One page of batches."""

    object: Literal["list"] = "list"
    data: list[Batch]
    first_id: str | None = None
    last_id: str | None = None
    has_more: bool = False
