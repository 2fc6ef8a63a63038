"""The URLs of a job, as callers send and see them: its input, its output, its webhook and the events for it. Pure."""

from typing import Any, Literal

from pydantic import BaseModel, Field

#: Longest URL accepted, in characters; presigned URLs of S3 have up to some 2,000.
MAX_URL_CHARS = 4096

#: Events of a job that can be sent to a webhook. `job.completed` means that the job is final, whatever its status; the
#: events after it in this list are narrower. `job.output` comes later: the results are at the job's `output_url`, or
#: could not be written there.
JobEvent = Literal[
    "job.running", "job.completed", "job.succeeded", "job.failed", "job.canceled", "job.expired", "job.output"
]


class JobUrls(BaseModel):
    """Links from a job."""

    self: str
    results: str
    cancel: str
    events: str = ""
    deliveries: str = ""
    retry: str = ""


class JobInput(BaseModel):
    """The items of a job that are read from a URL."""

    url: str = Field(description="The URL, without its query.")
    state: Literal["waiting", "reading", "read", "failed"]
    bytes: int = Field(0, ge=0, description="Bytes that were read so far.")
    items: int = Field(0, ge=0, description="Items that were found so far; all, once it is read.")
    error: str | None = Field(None, description="Why it could not be read, or not yet.")


class JobOutput(BaseModel):
    """The results of a job that are written to a URL."""

    url: str = Field(description="The URL, without its query.")
    state: Literal["waiting", "writing", "written", "failed"]
    bytes: int = Field(0, ge=0, description="Bytes that were written.")
    attempts: int = Field(0, ge=0, description="Times that it was tried.")
    error: str | None = Field(None, description="Why it could not be written, or not yet.")


def without_query(url: str) -> str:
    """Return a URL that may be shown and logged: without its query, which may be a key."""
    return url.partition("?")[0]


def describe_input(url: str, found: dict[str, Any] | None, *, is_final: bool) -> JobInput:
    """Return a job's input as callers see it; ``found`` is what the store has."""
    found = found or {}
    state = found.get("state", "waiting")
    if is_final and state != "read":
        state = "failed"
    shown = {name: found[name] for name in ("bytes", "items", "error") if name in found}
    return JobInput(url=without_query(url), state=state, **shown)


def describe_output(url: str, found: dict[str, Any] | None) -> JobOutput:
    """Return a job's output as callers see it; ``found`` is what the store has."""
    found = found or {}
    shown = {name: found[name] for name in ("bytes", "attempts", "error") if name in found}
    return JobOutput(url=without_query(url), state=found.get("state", "waiting"), **shown)
