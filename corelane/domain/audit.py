"""The audit log: which admin did what, and when. Its wire format."""

from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, Field

from corelane.domain.texts import WIRE_NAME


class AuditAction(StrEnum):
    """The kind of change."""

    JOB_CANCEL = "job.cancel"
    JOB_RETRY = "job.retry"
    JOB_DELETE = "job.delete"
    RESULTS_DROP = "job.drop_results"
    FILE_DELETE = "file.delete"
    TEXT_DELETE = f"{WIRE_NAME}.delete"
    BATCH_CANCEL = "batch.cancel"
    JOBS_CANCEL = "jobs.cancel"
    JOBS_RETRY = "jobs.retry"
    MODEL_LOAD = "model.load"
    MODEL_RELOAD = "model.reload"
    MODEL_UNLOAD = "model.unload"
    ALIAS_SET = "alias.set"
    ALIAS_UNSET = "alias.unset"
    KEY_CREATE = "key.create"
    KEY_REVOKE = "key.revoke"
    PAUSE = "pause"
    RESUME = "resume"
    REDELIVER = "delivery.redeliver"
    SIGNING_CREATE = "webhook_secret.create"
    SIGNING_ROTATE = "webhook_secret.rotate"
    SIGNING_REMOVE = "webhook_secret.remove"


class AuditEntry(BaseModel):
    """One action."""

    object: Literal["audit_entry"] = "audit_entry"
    id: str
    at: str
    key: str = Field(description="The name of the API key; empty where keys are not checked.")
    owner: str = Field(description="The owner that acted.")
    action: str = Field(description="What was done, as `job.cancel` or `model.load`.")
    subject: str = Field(
        description="A job, a filter of jobs, an owner, a core, a version, an alias, a key, a delivery, a secret."
    )
    detail: str


class AuditList(BaseModel):
    """One page of actions, newest first."""

    object: Literal["list"] = "list"
    data: list[AuditEntry]
    has_more: bool = Field(description="Whether older ones follow.")
    next: str | None = Field(description="Cursor of the next page.")
