"""A job's story: its events, kept beside it, so that any process tells them, from any place on.

Scripts write it, in the step in which what it tells becomes true. It is bounded: of a job that goes on for very long
the oldest events are forgotten, each of which a later one outdated. A short job needs none: its beginning and its end
are read from the job itself, under ids that they keep if a story is begun.
"""

from dataclasses import dataclass

import orjson

from corelane.domain.events import EventType, Partial, Progress, parse_event_id
from corelane.domain.ids import iso_time
from corelane.domain.jobs import Counts, JobStatus
from corelane.store.jobs.records import JobRecord
from corelane.store.link.aio import AsyncLink
from corelane.store.link.surface import pairs

#: Before the first event.
BEGINNING = (0, 0)

#: The channel of the ids of jobs that become final.
FINISHED = "cl:done"

#: Events read in one trip.
PAGE_EVENTS = 200

Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Event:
    """One event as it is stored."""

    at: Place
    type: str
    fields: dict[str, bytes]

    @property
    def id(self) -> str:
        """The place as text."""
        return f"{self.at[0]}-{self.at[1]}"

    def describe(self, record: JobRecord) -> Progress | Partial:
        """What callers are told; for all types but the last."""
        head = {"job": record.id, "at": iso_time(self.at[0])}
        if self.type == EventType.PARTIAL:
            return Partial.model_validate(head | orjson.loads(self.fields["data"]))
        done = {name: int(self.fields.get(name, 0)) for name in ("succeeded", "failed")}
        return Progress.model_validate(head | {"counts": Counts(total=record.total, **done)})


@dataclass(frozen=True, slots=True)
class Chapter:
    """The next events; whether the job is final, or forgotten, and nothing will ever come after them."""

    events: list[Event]
    is_over: bool


class Stories:
    """The API's side of them."""

    def __init__(self, link: AsyncLink) -> None:
        self._link = link

    async def read(self, job: str, after: Place) -> Chapter:
        """The events after a place, at most a page.

        The job is read before them, so what it says of its beginning and its end is never ahead of the story.
        """
        (status, started_ms, finished_ms, story_end), entries = await self._link.many(
            [
                ("HMGET", f"cl:job:{{{job}}}", "status", "started_ms", "finished_ms", "story_end"),
                ("XRANGE", f"cl:story:{{{job}}}", f"({after[0]}-{after[1]}", "+", "COUNT", PAGE_EVENTS),
            ]
        )
        events = [_parse(entry) for entry in entries]
        if status is None:
            return Chapter(events, is_over=True)
        is_over = JobStatus(status.decode()).is_final and len(events) < PAGE_EVENTS
        start = (int(started_ms or 0), 0)
        if after < start and not (events and events[0].at == start):
            events.insert(0, Event(start, EventType.RUNNING, {}))
        if is_over:
            end = parse_event_id(story_end.decode()) if story_end else (max(int(finished_ms), start[0]), 1)
            if (events[-1].at if events else after) < end:
                events.append(Event(end, EventType.COMPLETED, {}))
        return Chapter(events, is_over)


def _parse(entry: tuple[bytes, list[bytes]]) -> Event:
    place, flat = entry
    fields = {name.decode(): value for name, value in pairs(flat)}
    return Event(parse_event_id(place.decode()), fields.pop("event").decode(), fields)
