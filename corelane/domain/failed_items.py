"""Failed items as a list of their own: the wire format."""

from typing import Literal

from pydantic import BaseModel, Field

from corelane.domain.jobs import ItemError


class FailedItem(BaseModel):
    """An item that failed, and its job."""

    object: Literal["failed_item"] = "failed_item"
    job: str
    job_name: str | None = Field(None, description="The caller's own name of the job.")
    index: int = Field(ge=0, description="Position of the item in its job.")
    id: str | None = Field(None, description="The caller's own id of the item.")
    error: ItemError | None
    model: str = Field(description="The model version of the job.")
    owner: str | None = Field(None, description="The owner of the job, if it is another than the caller.")
    created_at: str = Field(description="When the job was created.")
    finished_at: str | None = Field(None, description="When the job became final.")


class FailureGroup(BaseModel):
    """Items that failed with one code of error."""

    object: Literal["failure_group"] = "failure_group"
    code: str
    items: int
    jobs: int = Field(description="Jobs that they are in.")
    retryable: bool = Field(description="Whether asking again may succeed; retries leave the others out.")


class FailureGroups(BaseModel):
    """Failed items by code of error, the most first."""

    object: Literal["list"] = "list"
    data: list[FailureGroup]
    is_whole: bool = Field(
        description="Whether every job was looked at; else the newest 2,000 or so with failed items."
    )


class FailedItemList(BaseModel):
    """One page of failed items: newest job first, within a job in item order."""

    object: Literal["list"] = "list"
    data: list[FailedItem]
    has_more: bool = Field(description="Whether more may follow this page.")
    next: str | None = Field(description="Cursor of the next page.")
