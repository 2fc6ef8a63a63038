"""The events of a job: their types, and the data of each; part of the wire format.

A reader must skip types it does not know. An event's id is its place among the job's events: ids grow.
"""

import re
from enum import StrEnum
from types import MappingProxyType

from pydantic import BaseModel, Field

from corelane.domain.jobs import Counts, Job
from corelane.domain.wire import Open

#: An event's id: milliseconds since 1970, and a number within that millisecond, 0 if left out.
ID_PATTERN = "[0-9]{1,18}(-[0-9]{1,18})?"


class EventType(StrEnum):
    """The kind of event. ``job.completed`` is the last event, whatever the job's status."""

    RUNNING = "job.running"
    PROGRESS = "job.progress"
    PARTIAL = "item.partial"
    COMPLETED = "job.completed"


class Progress(BaseModel):
    """The progress of a job; the data of ``job.running`` and ``job.progress``."""

    job: str = Field(description="The job's id.")
    at: str = Field(description="When this was so.")
    counts: Counts


class Partial(Open):
    """What is known so far of an item with a long text; the data of ``item.partial``.

    Its task adds the fields of the result that are known, those that its preview shows. None comes after
    the item's result. ``windows_done`` starts again at 0 if a worker dies and another reads the item.
    """

    job: str = Field(description="The job's id.")
    at: str = Field(description="When this was so.")
    index: int = Field(ge=0, description="Position of the item in its job.")
    id: str | None = Field(description="The caller's own id.")
    windows_done: int = Field(ge=1, description="Windows of the text that were read.")
    windows_total: int = Field(ge=1, description="Windows that it has.")


#: The data of each type of event.
DATA: MappingProxyType[EventType, type[Progress] | type[Partial] | type[Job]] = MappingProxyType(
    {
        EventType.RUNNING: Progress,
        EventType.PROGRESS: Progress,
        EventType.PARTIAL: Partial,
        EventType.COMPLETED: Job,
    }
)


def parse_event_id(text: str) -> tuple[int, int]:
    """Parse an event's id to two numbers, which compare as ids do; raise ValueError for any other text."""
    if not re.fullmatch(ID_PATTERN, text):
        raise ValueError("an event's id looks like 1763712000000-0")
    ms, _, number = text.partition("-")
    return int(ms), int(number or 0)
