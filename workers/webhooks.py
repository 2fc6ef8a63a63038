"""The webhook sender: posts due deliveries, many at a time, a few to each host.

One asyncio loop runs all attempts, on one connection to Redis. It takes deliveries as attempts end, and waits for the
store to wake it. It extends the leases of deliveries in progress; if the process dies, they are due again within
seconds. The bytes of an event are stored before its first attempt. A failure is not blamed on the receiver if this
process could not extend the lease at that time, because it was stopped or Redis could not be reached. Then the attempt
is repeated and does not count.
"""

import asyncio
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

from corelane.domain.jobs import INLINE_RESULTS
from corelane.domain.request_facts import trace_id
from corelane.domain.webhook_secrets import OwnedSecret
from corelane.errors import SetupError, StoreUnavailable, Unavailable
from corelane.log import get_logger
from corelane.settings import Settings
from corelane.store.deliveries.sending import HOLD_S, LEASE_S, Attempt, Delivery, DeliveryStore
from corelane.store.link.link import AsyncLink
from corelane.store.link.replicas import open_gate
from corelane.tracing import Attributes, Tracer
from corelane.webhooks.post import post_event
from corelane.webhooks.protocol import (
    DeliveryVerdict,
    WebhookReply,
    event_payload,
    job_data,
    judge,
    sign_payload,
    signing_secrets,
    window_s,
)

log = get_logger(__name__)

#: Webhooks that one process posts at a time: they mostly wait for receivers.
THREADS = 64

#: Results of at most this many bytes are in the webhook's payload. Receivers often refuse bodies of much more.
INLINE_BYTES = 16 * 1024

#: A success is reported again for this time while Redis cannot be reached, in seconds, so that the receiver does not
#: get it twice.
REPORT_S, REPORT_PAUSE_S = 10.0, 0.5

#: Longest wait for a small job's results, in seconds.
RESULTS_S = 10

#: Longest time of a round, in seconds.
ROUND_S = 5.0

#: While attempts are in progress, new deliveries are looked for this often, in seconds.
PEEK_S = 0.05


class Hold:
    """The time for which this process certainly holds a delivery. Once the time is over, it stays over."""

    def __init__(self, since_s: float) -> None:
        self._until_s = since_s + LEASE_S
        #: The attempt was reported. The delivery may be handed out again, also to this process.
        self.is_reported = False

    @property
    def lasts(self) -> bool:
        """Return whether no other sender can have the delivery."""
        return time.monotonic() < self._until_s

    def renew(self, since_s: float) -> None:
        """Note that the lease was extended at that time."""
        if self.lasts:
            self._until_s = since_s + LEASE_S


class WebhookSender:
    """Posts due deliveries. All rounds must be called from one thread, which has the event loop."""

    def __init__(self, settings: Settings, tracer: Tracer | None) -> None:
        self._settings = settings
        self._tracer = tracer
        self._runner = asyncio.Runner()
        self._link = AsyncLink(settings.redis_url)
        self._gate = open_gate(settings)
        self._store = DeliveryStore(self._link, settings, self._gate)
        self._under_way: dict[str, tuple[Hold, asyncio.Task[None]]] = {}
        self._held_s = 0.0

    def go_round(self, should_stop: Callable[[], bool]) -> None:
        """Post for a few seconds; raises Unavailable if Redis cannot be reached."""
        self._runner.run(self._round(should_stop))

    def finish(self) -> None:
        """Take no more deliveries, and wait for those in progress."""
        self._runner.run(self._finish())
        self._runner.close()
        if self._tracer is not None:
            self._tracer.flush()

    async def _round(self, should_stop: Callable[[], bool]) -> None:
        end = time.monotonic() + ROUND_S
        while time.monotonic() < end and not should_stop():
            await self._hold()
            free = THREADS - len(self._under_way)
            began_s = time.monotonic()
            taken = await self._store.take(free) if free else []
            for delivery in taken:
                known = self._under_way.get(delivery)
                if (
                    known is None or known[0].is_reported
                ):  # else its lease had lapsed, and it is still being posted here
                    hold = Hold(began_s)
                    self._under_way[delivery] = hold, asyncio.create_task(self._deliver(delivery, hold))
            if self._under_way:
                await self._wait_for_one(PEEK_S if free else HOLD_S)
            else:
                await self._store.wait()

    async def _finish(self) -> None:
        end = time.monotonic() + self._settings.webhook_timeout_s
        while self._under_way and time.monotonic() < end:
            with suppress(Unavailable):
                await self._hold()
            await self._wait_for_one(HOLD_S)
        await self._link.close()
        if self._gate is not None:
            await self._gate.close()

    async def _hold(self) -> None:
        self._under_way = {each: entry for each, entry in self._under_way.items() if not entry[1].done()}
        now = time.monotonic()
        if now - self._held_s < HOLD_S:
            return
        holds = {each: hold for each, (hold, _) in self._under_way.items() if hold.lasts and not hold.is_reported}
        if holds:
            await self._store.hold(list(holds))
        for hold in holds.values():
            hold.renew(now)
        self._held_s = now

    async def _wait_for_one(self, seconds: float) -> None:
        if tasks := [task for _, task in self._under_way.values()]:
            await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)

    async def _deliver(self, delivery: str, hold: Hold) -> None:
        try:
            await deliver(self._settings, self._store, delivery, hold, self._tracer)
        except Unavailable as error:
            log.debug("delivery_waits_for_store", delivery=delivery, detail=error.detail)
        except Exception as error:  # nothing awaits this task's result
            log.error("delivery_broke", delivery=delivery, exc_info=error)


async def deliver(
    settings: Settings, store: DeliveryStore, delivery_id: str, hold: Hold, tracer: Tracer | None = None
) -> None:
    """Make one attempt and report it. A delivery that is done or gone is left alone.

    If the hold is over, a failure is not reported: the delivery is due again, unless another sender has it.
    """
    delivery = await store.get(delivery_id)
    if delivery is None or delivery.state != "pending":
        return
    at_ms, tries = await store.now_ms(), delivery.tries + 1
    try:
        payload = delivery.payload or await store.fix(delivery_id, await make_payload(settings, store, delivery))
        if payload is None:
            return
        await store.confirm(delivery_id)
        reply, is_ours = await _attempt(settings, await store.secrets(delivery.owner), delivery, payload, tracer), False
    except Unavailable:
        raise
    except Exception as error:
        # An unforeseen error may repeat. It counts as an attempt, so that the delivery makes room for others and ends.
        log.exception("delivery_broke", delivery=delivery_id)
        reply, is_ours = WebhookReply(0, 0, error=f"internal error, not the receiver's: {type(error).__name__}"), True
    verdict = judge(reply, tries, settings.webhook_retries_s, random.random(), datetime.now(UTC))
    if is_ours:
        verdict = replace(verdict, is_host_well=True)
    if verdict.outcome == "failed" and not hold.lasts:
        log.info("delivery_lapsed", delivery=delivery_id, host=delivery.host, status=reply.status, error=reply.error)
        return
    attempt = Attempt(at_ms, reply.status, reply.duration_ms, reply.error, reply.snippet)
    state = await _report(store, settings, delivery_id, verdict, attempt)
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
        **trace_ids(delivery),
    )


async def _report(
    store: DeliveryStore, settings: Settings, delivery: str, verdict: DeliveryVerdict, attempt: Attempt
) -> str:
    """Report an attempt; return the delivery's state. A final outcome is reported again until Redis accepts it."""
    end = time.monotonic() + (0 if verdict.outcome == "failed" else REPORT_S)
    while True:
        try:
            return await store.report(
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
            await asyncio.sleep(REPORT_PAUSE_S)


async def make_payload(settings: Settings, store: DeliveryStore, delivery: Delivery) -> bytes:
    """Make the bytes of an event from the facts noted when it happened, and a small job's results."""
    data, job = delivery.data, delivery.job
    if data is None:
        if job is None:
            raise ValueError(f"{delivery.id} has neither payload nor facts")
        results = []
        if job.finished_ms is not None and 0 < job.total <= INLINE_RESULTS and not job.dropped:
            try:
                async with asyncio.timeout(RESULTS_S):
                    results = await store.results(job)
            except TimeoutError:
                raise StoreUnavailable("Redis does not reply in time") from None
        if sum(each["status"] == "succeeded" for each in results) != job.succeeded:
            results = []  # some are gone by now
        limit, url = INLINE_BYTES, settings.public_url
        data = job_data(job.describe(usage=False), results, inline_bytes=limit, public_url=url)
    return event_payload(delivery.event, delivery.at_ms, data)


def trace_ids(delivery: Delivery) -> dict[str, str]:
    """Return the log fields for a delivery's trace; empty if it has none."""
    parent = delivery.headers.get("traceparent")
    return {"trace_id": trace_id(parent)} if parent else {}


async def _attempt(
    settings: Settings, own: Sequence[OwnedSecret], delivery: Delivery, payload: bytes, tracer: Tracer | None
) -> WebhookReply:
    try:
        secrets = signing_secrets(settings, own)
    except SetupError as error:
        return WebhookReply(0, 0, error=error.detail)
    headers = {**delivery.headers, **sign_payload(secrets, delivery.id, datetime.now(UTC), payload)}
    if tracer is None or "traceparent" not in headers:
        return await post_event(settings, delivery.url, headers, payload)
    return await _traced_post(settings, delivery, headers, payload, tracer)


async def _traced_post(
    settings: Settings, delivery: Delivery, headers: Mapping[str, str], payload: bytes, tracer: Tracer
) -> WebhookReply:
    """Make the attempt as a step of the job's trace; the receiver is its next step."""
    facts: Attributes = {
        "http.request.method": "POST",
        "http.request.resend_count": delivery.tries or None,
        "server.address": delivery.host,
        "url.scheme": delivery.url.partition(":")[0],
        "corelane.delivery.id": delivery.id,
        "corelane.event": delivery.event,
        "corelane.job.id": delivery.subject,
    }
    traced = tracer.begin("POST webhook", "client", headers["traceparent"], facts)
    reply, failure = None, "CancelledError"
    try:
        reply = await post_event(settings, delivery.url, {**headers, "traceparent": traced.traceparent}, payload)
        failure = str(reply.status or "no_response")
    finally:
        is_well = reply is not None and 200 <= reply.status < 300
        status = reply.status or None if reply is not None else None
        traced.end({"http.response.status_code": status}, None if is_well else failure)
    return reply
