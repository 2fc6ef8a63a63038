"""A job's events, stored with the job: any process can read the events after a given one.

Scripts write an event in the step that makes it true. The list is bounded. A short job has no list: its first and last
events are made from the job itself. If the job gets a list later, these events keep their ids.
"""

from dataclasses import dataclass

from corelane.domain.events import EventType, Progress, parse_event_id
from corelane.domain.ids import iso_time
from corelane.domain.jobs import Counts, JobStatus
from corelane.store import keys
from corelane.store.jobs.records import JobRecord
from corelane.store.link.link import CommonLink, pairs

#: Time in milliseconds, and a number within that millisecond.
EventId = tuple[int, int]

#: An id before all events.
BEGINNING: EventId = (0, 0)

#: Events read in one trip.
PAGE_EVENTS = 200


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """One event as it is stored."""

    at: EventId
    type: str
    fields: dict[str, bytes]

    @property
    def id(self) -> str:
        """Return the id as text."""
        return f"{self.at[0]}-{self.at[1]}"

    def describe(self, record: JobRecord) -> Progress:
        """Return the data of the event as callers see it, for an event of any type but the last."""
        done = {name: int(self.fields.get(name, 0)) for name in ("succeeded", "failed")}
        return Progress(job=record.id, at=iso_time(self.at[0]), counts=Counts(total=record.total, **done))


@dataclass(frozen=True, slots=True)
class EventPage:
    """The next events; ``is_over`` if no more will follow, because the job is final or forgotten."""

    events: list[StoredEvent]
    is_over: bool


class JobEvents:
    """Reads a job's events."""

    def __init__(self, link: CommonLink) -> None:
        self._link = link

    async def read(self, job: str, after: EventId) -> EventPage:
        """Read the events after an id, at most a page.

        The job is read before its list of events, so its first and last events are never ahead of the others.
        """
        (status, started_ms, finished_ms, story_end), entries = await self._link.many(
            [
                ("HMGET", keys.job(job), "status", "started_ms", "finished_ms", "story_end"),
                ("XRANGE", keys.job_events(job), f"({after[0]}-{after[1]}", "+", "COUNT", PAGE_EVENTS),
            ]
        )
        events = [_parse(entry) for entry in entries]
        if status is None:
            return EventPage(events, is_over=True)
        is_over = JobStatus(status.decode()).is_final and len(events) < PAGE_EVENTS
        start = (int(started_ms or 0), 0)
        if after < start and not (events and events[0].at == start):
            events.insert(0, StoredEvent(start, EventType.RUNNING, {}))
        if is_over:
            end = parse_event_id(story_end.decode()) if story_end else (max(int(finished_ms), start[0]), 1)
            if (events[-1].at if events else after) < end:
                events.append(StoredEvent(end, EventType.COMPLETED, {}))
        return EventPage(events, is_over)


def _parse(entry: tuple[bytes, list[bytes]]) -> StoredEvent:
    event_id, flat = entry
    fields = {name.decode(): value for name, value in pairs(flat)}
    return StoredEvent(parse_event_id(event_id.decode()), fields.pop("event").decode(), fields)
