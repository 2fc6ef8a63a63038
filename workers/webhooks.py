"""The courier: posts what is due, many at a time, a few to each host.

It takes deliveries as threads become free and waits for the store to wake it. What it has under way it holds, again and
again; whatever dies, a delivery that is not held is due again within seconds. Its bytes were kept before the first
attempt. A failure that falls into a time in which this process could not hold the delivery, as it was stopped or Redis
was away, is not the receiver's: the attempt is made again, and counts for nothing.
"""

import asyncio
import random
import threading
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from corelane.errors import SetupError, StoreUnavailable, Unavailable
from corelane.fault_injection import reach
from corelane.log import get_logger
from corelane.settings import Settings
from corelane.store.deliveries.sending import HOLD_S, LEASE_S, Attempt, Delivery, DeliveryStore
from corelane.store.jobs.records import JobRecord
from corelane.store.jobs.results import read_results
from corelane.store.link.aio import AsyncLink
from corelane.webhooks.events import event_payload, job_data, sign_payload, signing_secrets
from corelane.webhooks.post import post_event
from corelane.webhooks.retries import Reply, Verdict, judge, window_s

log = get_logger(__name__)

#: A receiver's yes is reported again and again for so long while Redis is away, in seconds: it need not be asked twice.
REPORT_S, REPORT_PAUSE_S = 10.0, 0.5

#: Longest time a small job's results are waited for, in seconds.
RESULTS_S = 10


class Hold:
    """How long a delivery is surely held by this process; once that was over, it stays over."""

    def __init__(self, since_s: float) -> None:
        self._until_s = since_s + LEASE_S
        #: The attempt was reported: the delivery may be handed out again, to this process too.
        self.is_reported = False

    @property
    def lasts(self) -> bool:
        """Whether nobody else can have been given the delivery."""
        return time.monotonic() < self._until_s

    def renew(self, since_s: float) -> None:
        """It was held again at that time."""
        if self.lasts:
            self._until_s = since_s + LEASE_S


class Courier:
    """Posts due deliveries from the threads of this process. Its rounds are called from one thread."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._local = threading.local()
        self._pool = ThreadPoolExecutor(settings.webhook_threads, "courier")
        self._under_way: dict[str, tuple[Hold, Future[None]]] = {}
        self._held_s = 0.0

    def go_round(self) -> None:
        """Take what is due, as far as threads are free, or wait a moment; raises Unavailable if Redis is away."""
        self._hold()
        free = self._settings.webhook_threads - len(self._under_way)
        if not free:
            self._wait_for_one()
            return
        began_s = time.monotonic()
        taken = self._store().take(free)
        for delivery in taken:
            known = self._under_way.get(delivery)
            if known is None or known[0].is_reported:  # else its lease had lapsed, and it is still being posted here
                hold = Hold(began_s)
                self._under_way[delivery] = hold, self._pool.submit(self._deliver, delivery, hold)
        if not taken:
            self._store().wait()

    def finish(self) -> None:
        """Take no more, and wait for what is under way."""
        end = time.monotonic() + self._settings.webhook_timeout_s
        while self._under_way and time.monotonic() < end:
            with suppress(Unavailable):
                self._hold()
            self._wait_for_one()

    def _hold(self) -> None:
        self._under_way = {each: entry for each, entry in self._under_way.items() if not entry[1].done()}
        now = time.monotonic()
        if now - self._held_s < HOLD_S:
            return
        holds = {each: hold for each, (hold, _) in self._under_way.items() if hold.lasts and not hold.is_reported}
        if holds:
            self._store().hold(list(holds))
        for hold in holds.values():
            hold.renew(now)
        self._held_s = now

    def _wait_for_one(self) -> None:
        wait([future for _, future in self._under_way.values()], HOLD_S, FIRST_COMPLETED)

    def _deliver(self, delivery: str, hold: Hold) -> None:
        try:
            deliver(self._settings, self._store(), delivery, hold)
        except Unavailable as error:
            log.debug("delivery_waits_for_store", delivery=delivery, detail=error.detail)
        except Exception as error:  # nobody waits for this thread's result
            log.error("delivery_broke", delivery=delivery, exc_info=error)

    def _store(self) -> DeliveryStore:
        """This thread's own."""
        if not hasattr(self._local, "store"):
            self._local.store = DeliveryStore(self._settings)
        store: DeliveryStore = self._local.store
        return store


def deliver(settings: Settings, store: DeliveryStore, delivery_id: str, hold: Hold) -> None:
    """Make one attempt and report it. A delivery that is done or forgotten is left alone.

    A failure is not reported if the delivery is not held any more: it is due again, if it is not under way elsewhere.
    """
    delivery = _first_look(store, delivery_id)
    if delivery is None or delivery.state != "pending":
        return
    at_ms, tries = store.now_ms(), delivery.tries + 1
    try:
        payload = delivery.payload or store.fix(delivery_id, make_payload(settings, delivery))
        if payload is None:
            return
        reach("delivery.payload_kept", settings.armed_faults)
        reply, is_ours = _attempt(settings, delivery, payload), False
        reach("delivery.posted", settings.armed_faults)
    except Unavailable:
        raise
    except Exception as error:
        # Nobody foresaw it, so it may come again: counted as an attempt, it leaves its place to others and ends.
        log.exception("delivery_broke", delivery=delivery_id)
        reply, is_ours = Reply(0, 0, error=f"internal error, not the receiver's: {type(error).__name__}"), True
    verdict = judge(reply, tries, settings.webhook_retries_s, random.random(), datetime.now(UTC))
    if is_ours:
        verdict = replace(verdict, is_host_well=True)
    if verdict.outcome == "failed" and not hold.lasts:
        log.info("delivery_lapsed", delivery=delivery_id, host=delivery.host, status=reply.status, error=reply.error)
        return
    attempt = Attempt(at_ms, reply.status, reply.duration_ms, reply.error, reply.snippet)
    state = _report(store, settings, delivery_id, verdict, attempt)
    hold.is_reported = True
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


def _report(store: DeliveryStore, settings: Settings, delivery: str, verdict: Verdict, attempt: Attempt) -> str:
    """Report an attempt; the state of its delivery. What needs no further attempt is reported until Redis takes it."""
    end = time.monotonic() + (0 if verdict.outcome == "failed" else REPORT_S)
    while True:
        try:
            return store.report(
                delivery,
                verdict.outcome,
                attempt,
                is_host_well=verdict.is_host_well,
                pause_s=verdict.pause_s,
                rest_s=verdict.host_pause_s,
                window_s=window_s(settings.webhook_retries_s),
            )
        except Unavailable:
            if time.monotonic() > end:
                raise
            time.sleep(REPORT_PAUSE_S)


def _first_look(store: DeliveryStore, delivery: str) -> Delivery | None:
    """Read a delivery; once more if the thread's connection had ended while it was idle."""
    try:
        return store.get(delivery)
    except Unavailable:
        return store.get(delivery)


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
        async with asyncio.timeout(RESULTS_S):
            results = await read_results(link, job, 0, job.total)
    except TimeoutError:
        raise StoreUnavailable("Redis does not answer in time") from None
    finally:
        await link.close()
    return results if sum(each["status"] == "succeeded" for each in results) == job.succeeded else []
