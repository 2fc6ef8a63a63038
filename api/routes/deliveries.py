"""Deliveries: a job's webhooks, attempt by attempt; redelivery; the dead letters."""

import re
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Query
from pydantic import BaseModel, Field

from api.deps import AdminCaller, JobId, ReadCaller, StateDep, SubmitCaller, audit
from api.errors import documented
from api.state import AppState
from corelane.domain.api_keys import Caller
from corelane.domain.batches import Batch
from corelane.domain.ids import iso_time
from corelane.domain.jobs import Job
from corelane.errors import InvalidInput, NotFound
from corelane.store.deliveries.log import LoggedDelivery
from corelane.store.deliveries.sending import State

router = APIRouter(prefix="/v1", tags=["webhooks"], responses=documented(403, 404, 422, 503))

#: The requests that receivers get, for the OpenAPI document.
posted = APIRouter(tags=["webhooks"])

#: The form of a delivery's id, evt_SUBJECT_EVENT.
DELIVERY_ID = re.compile(r"evt_[0-9a-z]{1,64}_[a-z_]{1,32}")

#: The form of a cursor of dead letters: the time when a page's last delivery was given up, and that delivery's id.
CURSOR = re.compile(r"(\d{1,15})\.([0-9a-z_]{1,120})")


class AttemptInfo(BaseModel):
    """One attempt at a delivery."""

    at: str
    status: int | None = Field(description="What the receiver answered; null if it did not.")
    duration_ms: int = Field(ge=0, description="Time it took, names and connections included.")
    error: str | None = Field(description="Why there was no response, or what was wrong with it.")
    snippet: str | None = Field(description="The beginning of the response's body, 1 kB at most.")


class DeliveryUrls(BaseModel):
    """Links from a delivery."""

    self: str
    redeliver: str


class DeliveryInfo(BaseModel):
    """One event on its way to a receiver."""

    object: Literal["delivery"] = "delivery"
    id: str = Field(description="The `webhook-id` of every attempt.")
    event: str = Field(description="`job.completed` and the like.")
    subject: str = Field(description="The job (or batch) that it is about.")
    url: str
    state: State = Field(
        description="pending; delivered; gone (the receiver said 410); dead (given up, kept for redelivery)."
    )
    created_at: str
    ended_at: str | None
    next_attempt_at: str | None = Field(
        description="When it is tried next, at the earliest: it is due then, and its host is not left alone."
    )
    attempt_count: int = Field(ge=0)
    attempts: list[AttemptInfo] = Field(description="The last fifty, oldest first.")
    urls: DeliveryUrls


class DeliveryList(BaseModel):
    """Deliveries in order of time: a job's by their events, dead letters by when they were given up."""

    object: Literal["list"] = "list"
    data: list[DeliveryInfo]
    has_more: bool = False
    next: str | None = Field(None, description="Cursor of the next page.")


class JobNotice(BaseModel):
    """The body posted about a job or batch. Each type is posted once, under its own `webhook-id`."""

    type: str = Field(description="`job.completed`, `batch.completed` and the like.")
    timestamp: str = Field(description="When it happened.")
    data: Job | Batch = Field(description="The job as it stood then, with its results if they are small; or the batch.")


@posted.post("job", responses={"default": {"description": "Tried again for a day; 410 ends it."}})
async def job_event(body: JobNotice) -> None:
    """Receive an event of a job or batch, signed by the Standard Webhooks scheme. Respond with any 2xx."""


async def get_delivery_id(delivery_id: Annotated[str, Path(description="The delivery's id.")]) -> str:
    """Return a path's delivery id; raise NotFound if it is malformed."""
    if not DELIVERY_ID.fullmatch(delivery_id):
        raise NotFound(f"there is no delivery {delivery_id[:64]!r}; ids look like evt_0…_completed")
    return delivery_id


DeliveryId = Annotated[str, Depends(get_delivery_id)]


@router.get("/jobs/{job_id}/deliveries", responses=documented(410))
async def list_job_deliveries(job_id: JobId, state: StateDep, caller: ReadCaller) -> DeliveryList:
    """List the deliveries of a job: sent, pending or given up."""
    record = await state.jobs.require(job_id, caller)
    return DeliveryList(data=[describe(found) for found in await state.deliveries.of(record.id)])


@router.get("/deliveries")
async def list_dead_deliveries(
    state: StateDep,
    caller: AdminCaller,
    _kind: Annotated[
        Literal["dead"], Query(alias="state", description="Dead letters: given up, and kept for redelivery.")
    ] = "dead",
    after: Annotated[str | None, Query(max_length=140, description="Cursor of an earlier page's `next`.")] = None,
    limit: Annotated[int, Query(ge=1, le=100, description="Most deliveries in a page.")] = 20,
) -> DeliveryList:
    """List the dead letters of every key, the earliest first; where keys are not checked, your own."""
    after_ms, after_id = read_cursor(after)
    owner = None if state.jobs.sees_all(caller) else caller.owner
    found = await state.deliveries.dead(after_ms, after_id, limit + 1, owner)
    page, has_more = found[:limit], len(found) > limit
    last = page[-1] if has_more else None
    cursor = None if last is None else f"{last.ended_ms or 0}.{last.delivery.id}"
    return DeliveryList(data=[describe(each) for each in page], has_more=has_more, next=cursor)


@router.get("/deliveries/{delivery_id}")
async def get_delivery(delivery_id: DeliveryId, state: StateDep, caller: ReadCaller) -> DeliveryInfo:
    """Return one delivery and its attempts."""
    return describe(await require_delivery(state, delivery_id, caller))


@router.post("/deliveries/{delivery_id}/redeliver", status_code=202)
async def redeliver(delivery_id: DeliveryId, state: StateDep, caller: SubmitCaller) -> DeliveryInfo:
    """Post an event again now, with the same `webhook-id` and bytes, a new signature and a full set of attempts.

    A delivery that is under way goes on unchanged. May be repeated.
    """
    await require_delivery(state, delivery_id, caller)
    if not await state.deliveries.redeliver(delivery_id):
        raise no_such_delivery(delivery_id)
    audit(caller, "delivery.redeliver", delivery_id)
    return describe(await require_delivery(state, delivery_id, caller))


async def require_delivery(state: AppState, delivery_id: str, caller: Caller) -> LoggedDelivery:
    """Return a caller's own delivery, or any for an admin; raise NotFound, also for another owner's."""
    found = await state.deliveries.get(delivery_id)
    if found is None or (found.delivery.owner != caller.owner and not state.jobs.sees_all(caller)):
        raise no_such_delivery(delivery_id)
    return found


def no_such_delivery(delivery_id: str) -> NotFound:
    """Return the error for an id that is unknown, or not known any more."""
    return NotFound(f"there is no delivery {delivery_id}; it never existed, or its time to be kept is over")


def read_cursor(after: str | None) -> tuple[int, str]:
    """Return the time and the id in a cursor; raise InvalidInput if it is malformed."""
    if after is None:
        return 0, ""
    match = CURSOR.fullmatch(after)
    if match is None:
        raise InvalidInput("`after` is not a cursor; pass the `next` of the page before")
    return int(match[1]), match[2]


def describe(found: LoggedDelivery) -> DeliveryInfo:
    """Return a delivery as callers see it."""
    delivery, home = found.delivery, f"/v1/deliveries/{found.delivery.id}"
    return DeliveryInfo(
        id=delivery.id,
        event=delivery.event,
        subject=delivery.subject,
        url=delivery.url,
        state=delivery.state,
        created_at=iso_time(delivery.at_ms),
        ended_at=None if found.ended_ms is None else iso_time(found.ended_ms),
        next_attempt_at=None if found.next_ms is None else iso_time(found.next_ms),
        attempt_count=delivery.attempts,
        attempts=[
            AttemptInfo(
                at=iso_time(attempt.at_ms),
                status=attempt.status or None,
                duration_ms=attempt.duration_ms,
                error=attempt.error,
                snippet=attempt.snippet or None,
            )
            for attempt in found.attempts
        ],
        urls=DeliveryUrls(self=home, redeliver=f"{home}/redeliver"),
    )
