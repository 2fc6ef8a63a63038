"""The events of a job: their types, and the data of each; part of the wire format.

A reader must skip types it does not know. An event's id is its place among the job's events: ids grow.
"""

import re
from enum import StrEnum
from types import MappingProxyType

from pydantic import BaseModel, Field

from corelane.domain.jobs import Counts, Job

#: An event's id: milliseconds since 1970, and a number within that millisecond, 0 if left out.
ID_PATTERN = "[0-9]{1,18}(-[0-9]{1,18})?"


class EventType(StrEnum):
    """The kind of event. ``job.completed`` is the last event, whatever the job's status."""

    RUNNING = "job.running"
    PROGRESS = "job.progress"
    COMPLETED = "job.completed"


class Progress(BaseModel):
    """The progress of a job; the data of ``job.running`` and ``job.progress``."""

    job: str = Field(description="The job's id.")
    at: str = Field(description="When this was so.")
    counts: Counts


#: The data of each type of event.
DATA: MappingProxyType[EventType, type[Progress] | type[Job]] = MappingProxyType(
    {
        EventType.RUNNING: Progress,
        EventType.PROGRESS: Progress,
        EventType.COMPLETED: Job,
    }
)


def parse_event_id(text: str) -> tuple[int, int]:
    """Parse an event's id to two numbers, which compare as ids do; raise ValueError for any other text."""
    if not re.fullmatch(ID_PATTERN, text):
        raise ValueError("an event's id looks like 1763712000000-0")
    ms, _, number = text.partition("-")
    return int(ms), int(number or 0)
