"""The courier: posts what is due, many at a time, a few to each host.

It takes deliveries as threads become free and waits for the store to wake it. Whatever dies, a delivery that was taken
is due again a few seconds after its attempt must have been over; its bytes were kept before the first one.
"""

import asyncio
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from datetime import UTC, datetime
from typing import Any

from corelane.errors import SetupError, Unavailable
from corelane.faults import reach
from corelane.log import get_logger
from corelane.settings import Settings
from corelane.store.async_link import AsyncLink
from corelane.store.deliveries import Attempt, Delivery, DeliveryStore
from corelane.store.records import JobRecord
from corelane.store.results import read_results
from corelane.webhooks.events import event_payload, job_data, sign_payload, signing_secrets
from corelane.webhooks.post import post_event
from corelane.webhooks.retries import Reply, judge, window_s

log = get_logger(__name__)

#: One task posts for so long at most, so that Celery sees tasks end; the next sweep begins another, in seconds.
TASK_S = 60

#: With every thread busy, whether to stop is looked at this often, in seconds.
BUSY_LOOK_S = 1.0


class Courier:
    """Posts due deliveries from the threads of this process. One at a time: a second round ends at once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._round = threading.Lock()
        self._local = threading.local()
        self._pool = ThreadPoolExecutor(settings.webhook_threads, "courier")
        self._under_way: set[Future[None]] = set()

    def post_due(self, should_stop: Callable[[], bool]) -> str:
        """Post what is due and what becomes due, for a while; a line on it. Raises Unavailable if Redis is away.

        What is under way at the end goes on; when told to stop, it is waited for.
        """
        if not self._round.acquire(blocking=False):
            return "posts already"
        try:
            taken = self._post_until(time.monotonic() + TASK_S, should_stop)
            if should_stop():
                wait(self._under_way, self._settings.webhook_timeout_s)
            return f"{taken} taken"
        finally:
            self._round.release()

    def _post_until(self, end: float, should_stop: Callable[[], bool]) -> int:
        store, total = self._store(), 0
        while not should_stop() and time.monotonic() < end:
            self._under_way = {future for future in self._under_way if not future.done()}
            free = self._settings.webhook_threads - len(self._under_way)
            if not free:
                wait(self._under_way, BUSY_LOOK_S, FIRST_COMPLETED)
                continue
            taken = store.take(free)
            self._under_way |= {self._pool.submit(self._deliver, delivery) for delivery in taken}
            total += len(taken)
            if not taken:
                store.wait()
        return total

    def _deliver(self, delivery: str) -> None:
        try:
            deliver(self._settings, self._store(), delivery)
        except Unavailable as error:
            log.warning("delivery_waits_for_store", delivery=delivery, detail=error.detail)
        except Exception as error:  # nobody waits for this thread's result
            log.error("delivery_broke", delivery=delivery, exc_info=error)

    def _store(self) -> DeliveryStore:
        """This thread's own."""
        if not hasattr(self._local, "store"):
            self._local.store = DeliveryStore(self._settings)
        store: DeliveryStore = self._local.store
        return store


def deliver(settings: Settings, store: DeliveryStore, delivery_id: str) -> None:
    """Make one attempt and report it. A delivery that is done or forgotten is left alone."""
    delivery = store.get(delivery_id)
    if delivery is None or delivery.state != "pending":
        return
    at_ms = store.now_ms()
    payload = delivery.payload or store.fix(delivery_id, make_payload(settings, delivery))
    reach("delivery.payload_kept", settings.armed_faults)
    reply = _attempt(settings, delivery, payload)
    reach("delivery.posted", settings.armed_faults)
    tries = delivery.tries + 1
    verdict = judge(reply, tries, settings.webhook_retries_s, random.random(), datetime.now(UTC))
    attempt = Attempt(at_ms, reply.status, reply.duration_ms, reply.error, reply.snippet)
    state = store.report(
        delivery_id,
        verdict.outcome,
        attempt,
        is_host_well=verdict.is_host_well,
        pause_s=verdict.pause_s,
        rest_s=verdict.host_pause_s,
        window_s=window_s(settings.webhook_retries_s),
    )
    log.info(
        "delivery",
        delivery=delivery_id,
        event_type=delivery.event,
        subject=delivery.subject,
        host=delivery.host,
        status=reply.status,
        error=reply.error,
        duration_ms=reply.duration_ms,
        attempt=tries,
        state=state,
        retry_after_s=verdict.pause_s,
        request_id=delivery.headers.get("x-request-id"),
    )


def make_payload(settings: Settings, delivery: Delivery) -> bytes:
    """The bytes of an event, from what was noted when it happened and a small job's results."""
    data = delivery.data
    if data is None:
        if delivery.job is None:
            raise ValueError(f"{delivery.id} has neither payload nor facts")
        results = asyncio.run(_small_results(settings, delivery.job))
        data = job_data(
            delivery.job.describe(),
            results,
            inline_bytes=settings.webhook_inline_bytes,
            public_url=settings.public_url,
        )
    return event_payload(delivery.event, delivery.at_ms, data)


def _attempt(settings: Settings, delivery: Delivery, payload: bytes) -> Reply:
    try:
        secrets = signing_secrets(settings)
    except SetupError as error:
        return Reply(0, 0, error=error.detail)
    signed = sign_payload(secrets, delivery.id, datetime.now(UTC), payload)
    return post_event(settings, delivery.url, {**delivery.headers, **signed}, payload)


async def _small_results(settings: Settings, job: JobRecord) -> list[dict[str, Any]]:
    """All results of a final job that carries them inline; none if they are many, or no longer all there."""
    if not job.status.is_final or not 0 < job.total <= settings.inline_results or job.dropped:
        return []
    link = AsyncLink(settings.redis_url)
    try:
        results = await read_results(link, job, 0, job.total)
    finally:
        await link.close()
    return results if sum(each["status"] == "succeeded" for each in results) == job.succeeded else []
